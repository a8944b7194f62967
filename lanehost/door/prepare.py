"""Rendering, tokenizing and finding where chats part, in worker threads, off the event loop.

A few workers, and no more: a flood of long texts waits here, inside places that the line
has promised, and takes no more than its share of the machine. Scopes take turns, so nobody
waits for all that another has sent. A client that leaves takes its work along if that has
not begun; what has begun runs to its end on its worker.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar, assert_never

from lanehost.door.accept import check_prompt_bytes
from lanehost.door.model_card import ModelCard
from lanehost.errors import InvalidRequest
from lanehost.job import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from lanehost.text.chat_marks import chat_marks
from lanehost.text.chat_template import ChatTemplate
from lanehost.text.model_text import ModelText

MAX_WORKERS = 2

_P = TypeVar("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPrompt:
    """The ids of a prompt, and where another chat is likely to part from it; see `Job.marks`."""

    prompt_ids: tuple[int, ...]
    marks: tuple[int, ...] = ()


class _Workers:
    """Threads, as many as there are turns to be had; within a scope first come, first served."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MAX_WORKERS, thread_name_prefix="prepare")
        self._num_free = MAX_WORKERS
        # Who waits for a turn, by scope; the scope that is next comes first.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def run(self, scope: str, work: Callable[[_P], _R], prompt: _P) -> _R:
        """Do some work on a thread, once it is the scope's turn."""
        loop = asyncio.get_running_loop()
        if self._num_free:
            self._num_free -= 1
        else:
            await self._turn(scope, loop.create_future())
        running = loop.run_in_executor(self._threads, work, prompt)
        running.add_done_callback(self._end_turn)
        # Whoever leaves now leaves its thread at work, so the turn is not over.
        return await asyncio.shield(running)

    async def _turn(self, scope: str, turn: "asyncio.Future[None]") -> None:
        self._waiting.setdefault(scope, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(scope, turn)
            else:
                self._pass_on()
            raise

    def _end_turn(self, running: "asyncio.Future[_R]") -> None:
        if not running.cancelled():
            running.exception()  # seen: the client may have left
        self._pass_on()

    def _pass_on(self) -> None:
        """Give a turn that is over to the next scope, and put that behind all others."""
        while self._waiting:
            scope = next(iter(self._waiting))
            turns = self._waiting.pop(scope)
            turn = turns.popleft()
            if turns:
                self._waiting[scope] = turns
            # One that was cancelled this very moment may still stand here.
            if not turn.cancelled():
                turn.set_result(None)
                return
        self._num_free += 1

    def _forget(self, scope: str, turn: "asyncio.Future[None]") -> None:
        turns = self._waiting.get(scope, deque())
        if turn in turns:
            turns.remove(turn)
        if not turns:
            self._waiting.pop(scope, None)


class Preparer:
    """Turns a prompt of any kind into token ids."""

    def __init__(self, text: ModelText, *, card: ModelCard) -> None:
        """Prepare with the model's own tokenizer and template."""
        self._text = text
        self._card = card
        self._longest_token_bytes = text.tokenizer.longest_token_bytes
        self._workers = _Workers()

    async def prepare(self, prompt: Prompt, scope: str = "") -> PreparedPrompt:
        """Return the ids of a prompt of a scope, unchecked, and the marks in it.

        Only a chat has any, and nobody looks for them when nothing is kept.

        Raises:
            InvalidRequest: the template refuses the chat, or there is none.
            DoesNotFit: the text is too long however it is tokenized.
        """
        if isinstance(prompt, ChatPrompt) and self._card.has_prompt_cache:
            self._check_chat_bytes(prompt)
            return await self._workers.run(scope, self._prepared_chat, prompt)
        return PreparedPrompt(prompt_ids=await self.prompt_ids(prompt, scope))

    async def prompt_ids(self, prompt: Prompt, scope: str = "") -> tuple[int, ...]:
        """Return the ids of a prompt of a scope, unchecked.

        Raises:
            InvalidRequest: the template refuses the chat, or there is none.
            DoesNotFit: the text is too long however it is tokenized.
        """
        match prompt:
            case TokenPrompt(token_ids=token_ids):
                return token_ids
            case TextPrompt(text=text):
                self._check_bytes(text)
                return tuple(await self._workers.run(scope, self._text.tokenizer.encode, text))
            case ChatPrompt():
                self._check_chat_bytes(prompt)
                return tuple(await self._workers.run(scope, self._chat_ids, prompt))
            case _:
                assert_never(prompt)

    def _check_chat_bytes(self, prompt: ChatPrompt) -> None:
        self._check_bytes("".join(message.text for message in prompt.messages))

    def _check_bytes(self, text: str) -> None:
        check_prompt_bytes(
            len(text.encode("utf-8", errors="surrogatepass")),
            longest_token_bytes=self._longest_token_bytes,
            card=self._card,
        )

    def _chat_ids(self, prompt: ChatPrompt) -> list[int]:
        return self._text.tokenizer.encode_rendered(self._template().render(prompt.messages))

    def _prepared_chat(self, prompt: ChatPrompt) -> PreparedPrompt:
        prompt_ids = self._chat_ids(prompt)
        marks: tuple[int, ...] = ()
        # One that is too long is refused by its length, and is not worth more work.
        if len(prompt_ids) <= self._card.context_length:
            marks = chat_marks(
                prompt.messages,
                prompt_ids,
                template=self._template(),
                tokenizer=self._text.tokenizer,
            )
        return PreparedPrompt(prompt_ids=tuple(prompt_ids), marks=marks)

    def _template(self) -> ChatTemplate:
        if self._text.template is None:
            message = f"{self._text.no_template_reason}; send text or token ids"
            raise InvalidRequest("chat", message)
        return self._text.template
