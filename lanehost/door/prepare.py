"""Rendering, tokenizing and finding where chats part, in worker threads, off the event loop.

A few workers, and no more: a flood of long texts waits here, inside places that the line
has promised, and takes no more than its share of the machine. A client that leaves takes
its work along if that has not begun; what has begun runs to its end on its worker.
"""

import asyncio
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


class Preparer:
    """Turns a prompt of any kind into token ids."""

    def __init__(self, text: ModelText, *, card: ModelCard) -> None:
        """Prepare with the model's own tokenizer and template."""
        self._text = text
        self._card = card
        self._longest_token_bytes = text.tokenizer.longest_token_bytes
        self._workers = ThreadPoolExecutor(MAX_WORKERS, thread_name_prefix="prepare")

    async def prepare(self, prompt: Prompt) -> PreparedPrompt:
        """Return the ids of a prompt, unchecked, and the marks in it.

        Only a chat has any, and nobody looks for them when nothing is kept.

        Raises:
            InvalidRequest: the template refuses the chat, or there is none.
            DoesNotFit: the text is too long however it is tokenized.
        """
        if isinstance(prompt, ChatPrompt) and self._card.has_prompt_cache:
            self._check_chat_bytes(prompt)
            return await self._run(self._prepared_chat, prompt)
        return PreparedPrompt(prompt_ids=await self.prompt_ids(prompt))

    async def prompt_ids(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the ids of a prompt, unchecked.

        Raises:
            InvalidRequest: the template refuses the chat, or there is none.
            DoesNotFit: the text is too long however it is tokenized.
        """
        match prompt:
            case TokenPrompt(token_ids=token_ids):
                return token_ids
            case TextPrompt(text=text):
                self._check_bytes(text)
                return tuple(await self._run(self._text.tokenizer.encode, text))
            case ChatPrompt():
                self._check_chat_bytes(prompt)
                return tuple(await self._run(self._chat_ids, prompt))
            case _:
                assert_never(prompt)

    def _check_chat_bytes(self, prompt: ChatPrompt) -> None:
        self._check_bytes("".join(message.content for message in prompt.messages))

    def _check_bytes(self, text: str) -> None:
        check_prompt_bytes(
            len(text.encode("utf-8", errors="surrogatepass")),
            longest_token_bytes=self._longest_token_bytes,
            card=self._card,
        )

    async def _run(self, work: Callable[[_P], _R], prompt: _P) -> _R:
        return await asyncio.get_running_loop().run_in_executor(self._workers, work, prompt)

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
