"""The doors before the model is there: they stand open, and say "still loading".

gRPC and HTTP are bound before any weight is read, so that a taken port is known at
once and health can be asked from the first second. Until the real door is hung in,
every request is refused as `Starting`.
"""

from lanehost.door.interface import Door, EventStream
from lanehost.door.model_card import ModelCard
from lanehost.door.uploads import Upload
from lanehost.errors import Starting
from lanehost.job import ChatPrompt, Request, Resumption, TextPrompt


class Gate:
    """A `Door` that hands everything to the real one, once there is one."""

    def __init__(self) -> None:
        """Begin shut."""
        self._door: Door | None = None
        self._is_suspended = False
        self._is_ending = False

    def __repr__(self) -> str:
        return f"<Gate {self._door!r}>"

    def open(self, door: Door) -> None:
        """Hang the real door in."""
        self._door = door

    async def submit(self, request: Request) -> EventStream:
        """Hand on, or raise `Starting`."""
        return await self._opened().submit(request)

    async def resume_stream(self, resumption: Resumption) -> EventStream:
        """Hand on, or raise `Starting`."""
        return await self._opened().resume_stream(resumption)

    async def tokenize(self, prompt: TextPrompt | ChatPrompt, *, key: str | None) -> list[int]:
        """Hand on, or raise `Starting`."""
        return await self._opened().tokenize(prompt, key=key)

    async def upload_image(self, data: bytes, *, key: str | None) -> Upload:
        """Hand on, or raise `Starting`."""
        return await self._opened().upload_image(data, key=key)

    async def detokenize(
        self, token_ids: tuple[int, ...], *, keep_special: bool, key: str | None
    ) -> str:
        """Hand on, or raise `Starting`."""
        return await self._opened().detokenize(token_ids, keep_special=keep_special, key=key)

    def model_card(self, key: str | None) -> ModelCard:
        """Hand on, or raise `Starting`."""
        return self._opened().model_card(key)

    def suspend(self) -> None:
        """Say not serving: the ranks are lost. Requests are still handed on, and wait."""
        self._is_suspended = True

    def resume(self) -> None:
        """Say serving again, unless a drain has begun meanwhile."""
        self._is_suspended = False

    def announce_end(self) -> None:
        """Say not serving from now on: a drain has begun. Requests are still handed on."""
        self._is_ending = True

    @property
    def is_ending(self) -> bool:
        """Whether a drain has begun, or the door takes no more requests."""
        return self._is_ending or (self._door is not None and not self._door.is_serving())

    def is_serving(self) -> bool:
        """Say whether requests are to be sent here: ranks are there, and no end is near."""
        if self._door is None or self._is_suspended or self._is_ending:
            return False
        return self._door.is_serving()

    def _opened(self) -> Door:
        if self._door is None:
            raise Starting("the model is still loading")
        return self._door
