"""A gate that counts what it refuses, before the model is there and after.

It stands where both doors, gRPC and HTTP, come in. What never became a call of the door
(no such path, a body that is no JSON, a field that is not known) is not counted.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from lanehost.door.gate import Gate
from lanehost.door.interface import EventStream
from lanehost.door.model_card import ModelCard
from lanehost.door.uploads import Upload
from lanehost.errors import Cancelled, InternalFault, LanehostError
from lanehost.job import ChatPrompt, Request, Resumption, TextPrompt


class CountingGate(Gate):
    """A `Gate` that counts: each request is refused by one call, if it is."""

    def __init__(self, refused: Counter[str]) -> None:
        """Begin shut; `refused` counts by class of error."""
        super().__init__()
        self._refused = refused

    async def submit(self, request: Request) -> EventStream:
        """Hand on, and count a refusal."""
        with self._counting():
            return await super().submit(request)

    async def resume_stream(self, resumption: Resumption) -> EventStream:
        """Hand on, and count a refusal."""
        with self._counting():
            return await super().resume_stream(resumption)

    async def tokenize(self, prompt: TextPrompt | ChatPrompt, *, key: str | None) -> list[int]:
        """Hand on, and count a refusal."""
        with self._counting():
            return await super().tokenize(prompt, key=key)

    async def upload_image(self, data: bytes, *, key: str | None) -> Upload:
        """Hand on, and count a refusal."""
        with self._counting():
            return await super().upload_image(data, key=key)

    async def detokenize(
        self, token_ids: tuple[int, ...], *, keep_special: bool, key: str | None
    ) -> str:
        """Hand on, and count a refusal."""
        with self._counting():
            return await super().detokenize(token_ids, keep_special=keep_special, key=key)

    def model_card(self, key: str | None) -> ModelCard:
        """Hand on, and count a refusal: the doors ask for the card, with the key, first."""
        with self._counting():
            return super().model_card(key)

    @contextmanager
    def _counting(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._refused[_name(error)] += 1
            raise


def _name(error: BaseException) -> str:
    """Say what the client is told, in the words of the error tree."""
    match error:
        case LanehostError():
            return type(error).__name__
        case asyncio.CancelledError():
            return Cancelled.__name__
        case _:
            return InternalFault.__name__
