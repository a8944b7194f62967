"""A streamed reply as users of the Python client hold it, for code that waits and that awaits.

Laws: leaving a stream's block cancels a reply that has not ended; a stream that ends
without its last event is an error, never a short reply.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, NoReturn, Self

import grpc

from lanehost.cancelling import is_cancelling
from lanehost.client_codec import Delta, Reply, ReplyBuilder
from lanehost.client_errors import CallCancelled, ServerFault, Status, translate

_CANCELLED = Status(code=grpc.StatusCode.CANCELLED, message="the reply was cancelled")


class _Stream:
    """What both kinds of streams share: the reply so far, and the call behind it."""

    def __init__(
        self,
        call: Any,  # the stubs are not typed
        *,
        address: str,
        request_id: str = "",
        next_index: int = 0,
    ) -> None:
        self._call = call
        self._resumed_id = request_id
        self._first_index = next_index
        self._address = address
        self._builder = ReplyBuilder()

    def __repr__(self) -> str:
        state = "ended" if self._builder.is_finished else "open"
        return f"<{type(self).__name__} {state} {len(self.text)} characters>"

    @property
    def request_id(self) -> str:
        """The server's name for the request, for `resume`; "" before it was told."""
        return self._builder.request_id or self._resumed_id

    @property
    def next_index(self) -> int:
        """Which token comes next, that of the first is 0: where to `resume`."""
        return self._first_index + self._builder.num_tokens

    @property
    def text(self) -> str:
        """The text so far."""
        return self._builder.text

    @property
    def reply(self) -> Reply:
        """The whole reply.

        Raises:
            RuntimeError: it has not ended.
        """
        return self._builder.reply()

    def cancel(self) -> None:
        """Cancel the reply if it has not ended; the server drops it at once."""
        self._call.cancel()

    def _raise(self, error: grpc.RpcError) -> NoReturn:
        has_begun = self._builder.has_begun
        raise translate(error, address=self._address, has_begun=has_begun) from None

    def _check_whole(self) -> None:
        if not self._builder.is_finished:
            message = "the server ended the stream without its last event"
            raise ServerFault(Status(code=grpc.StatusCode.INTERNAL, message=message))


class ReplyStream(_Stream):
    """Iterate over it once for the deltas; `reply` is the whole reply afterwards."""

    def __iter__(self) -> Iterator[Delta]:
        """Yield new tokens as they come."""
        try:
            for event in self._call:
                delta = self._builder.take(event)
                if delta is not None:
                    yield delta
        except grpc.RpcError as error:
            if self._call.cancelled():
                raise CallCancelled(_CANCELLED) from None
            self._raise(error)
        self._check_whole()

    def __enter__(self) -> Self:
        """Own the call until the block is left."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancel the reply if it has not ended."""
        self.cancel()


class AsyncReplyStream(_Stream):
    """Iterate over it once for the deltas; `reply` is the whole reply afterwards."""

    async def __aiter__(self) -> AsyncIterator[Delta]:
        """Yield new tokens as they come."""
        try:
            async for event in self._call:
                delta = self._builder.take(event)
                if delta is not None:
                    yield delta
        except grpc.RpcError as error:
            self._raise(error)
        except asyncio.CancelledError as error:
            _raise_if_call_cancelled(error)
        self._check_whole()

    async def __aenter__(self) -> Self:
        """Own the call until the block is left."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancel the reply if it has not ended."""
        self.cancel()


def _raise_if_call_cancelled(error: asyncio.CancelledError) -> NoReturn:
    """Raise what `cancel` did to the call, unless it is the task that is cancelled."""
    if is_cancelling():
        raise error
    raise CallCancelled(_CANCELLED) from None
