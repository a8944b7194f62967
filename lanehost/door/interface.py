"""What the doors (gRPC, HTTP) ask of the room behind them.

A door hands a `Request` in and reads events out; it never sees the engine. The
protocols stand here so that both doors can be run against a double.
"""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Protocol, Self

from lanehost.door.model_card import ModelCard
from lanehost.door.uploads import Upload
from lanehost.job import ChatPrompt, Event, Request, Resumption, TextPrompt


class EventStream(Protocol):
    """The events of one job, in the order that `lanehost.job` fixes.

    `Accepted` first, then `Prefilled` once, `Tokens` any number of times, then
    exactly one `Finished` or `Failed`, after which the iteration ends. Leaving
    `async with stream:` cancels the job if it has not ended: that is the one path
    for a client that cancelled, ran out of time or left.
    """

    @property
    def job_id(self) -> str:
        """The server's id of the job."""
        ...

    def __aiter__(self) -> AsyncIterator[Event]:
        """Iterate over the events, once."""
        ...

    def cancel(self) -> None:
        """Cancel the job if it has not ended; calling it again does nothing."""
        ...

    async def __aenter__(self) -> Self:
        """Own the job until the block is left."""
        ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancel the job if it has not ended."""
        ...


class Door(Protocol):
    """Accepts requests or refuses them with a typed error.

    `key` is the secret that came with a call, None when none did. All calls but
    `is_serving` raise `Unauthenticated` where it is needed and nobody has it; `submit`
    finds it in the request.
    """

    async def submit(self, request: Request) -> EventStream:
        """Put a request into the line.

        Raises:
            LanehostError: the refusal; its class says who must act.
        """
        ...

    async def resume_stream(self, resumption: Resumption) -> EventStream:
        """Go on with a stream; that it is not known comes as its last event.

        Raises:
            LanehostError: the refusal; its class says who must act.
        """
        ...

    async def tokenize(self, prompt: TextPrompt | ChatPrompt, *, key: str | None) -> list[int]:
        """Return the token ids that `submit` would run for this prompt.

        Raises:
            InvalidRequest: the prompt is empty, or the template refuses it.
        """
        ...

    async def upload_image(self, data: bytes, *, key: str | None) -> Upload:
        """Keep an image for requests to come.

        Raises:
            InvalidRequest: it is no picture that is taken, or the model takes none.
            Overloaded: no more are kept.
        """
        ...

    async def detokenize(
        self, token_ids: tuple[int, ...], *, keep_special: bool, key: str | None
    ) -> str:
        """Return the text of the ids.

        Raises:
            InvalidRequest: an id is outside the vocabulary.
        """
        ...

    def model_card(self, key: str | None) -> ModelCard:
        """Describe the model, its limits and defaults."""
        ...

    def is_serving(self) -> bool:
        """Say whether a request sent now would be run."""
        ...
