"""Rendering and tokenizing, in worker threads, off the event loop.

A few workers, and no more: a flood of long texts waits here, inside places that the line
has promised, and takes no more than its share of the machine. A client that leaves takes
its work along if that has not begun; what has begun runs to its end on its worker.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, assert_never

from lanehost.door.accept import check_prompt_bytes
from lanehost.door.model_card import ModelCard
from lanehost.errors import InvalidRequest
from lanehost.job import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from lanehost.text.model_text import ModelText

MAX_WORKERS = 2

_P = TypeVar("_P")


class Preparer:
    """Turns a prompt of any kind into token ids."""

    def __init__(self, text: ModelText, *, card: ModelCard) -> None:
        """Prepare with the model's own tokenizer and template."""
        self._text = text
        self._card = card
        self._longest_token_bytes = text.tokenizer.longest_token_bytes
        self._workers = ThreadPoolExecutor(MAX_WORKERS, thread_name_prefix="prepare")

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
                return await self._encode(self._text_ids, text)
            case ChatPrompt():
                self._check_bytes("".join(message.content for message in prompt.messages))
                return await self._encode(self._chat_ids, prompt)
            case _:
                assert_never(prompt)

    def _check_bytes(self, text: str) -> None:
        check_prompt_bytes(
            len(text.encode("utf-8", errors="surrogatepass")),
            longest_token_bytes=self._longest_token_bytes,
            card=self._card,
        )

    async def _encode(self, work: Callable[[_P], list[int]], prompt: _P) -> tuple[int, ...]:
        loop = asyncio.get_running_loop()
        return tuple(await loop.run_in_executor(self._workers, work, prompt))

    def _text_ids(self, text: str) -> list[int]:
        return self._text.tokenizer.encode(text)

    def _chat_ids(self, prompt: ChatPrompt) -> list[int]:
        template = self._text.template
        if template is None:
            message = f"{self._text.no_template_reason}; send text or token ids"
            raise InvalidRequest("chat", message)
        return self._text.tokenizer.encode_rendered(template.render(prompt.messages))
