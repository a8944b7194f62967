"""The Python client, for code that waits and for code that awaits.

    with Client("127.0.0.1:50051") as client:
        print(client.generate("The sky is", max_tokens=16).text)
        with client.stream(messages=[{"role": "user", "content": "Hello"}]) as stream:
            for delta in stream:
                print(delta.text, end="")
        print(stream.reply.usage)

`AsyncClient` is the same with `await`, `async with` and `async for`. A call that fails
raises a `ClientError` (client_errors.py). Leaving a stream's block cancels a reply that
has not ended.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from types import TracebackType
from typing import Any, NoReturn, Self, Unpack

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lanehost.client_codec import (
    CHANNEL_OPTIONS,
    Delta,
    Message,
    Options,
    Prompt,
    Reply,
    ReplyBuilder,
    decode_card,
    decode_reply,
    encode_request,
    encode_tokenize,
)
from lanehost.client_errors import (
    CallCancelled,
    ServerFault,
    Status,
    read_status,
    to_client_error,
)
from lanehost.door.model_card import ModelCard
from lanehost.v1 import inference_pb2 as pb
from lanehost.v1 import inference_pb2_grpc

DEFAULT_ADDRESS = "127.0.0.1:50051"
# For the calls that run no model; generate and stream have the option `timeout`.
_ASK_TIMEOUT_S = 60.0


class _Stream:
    """What both kinds of streams share: the reply so far, and the call behind it."""

    def __init__(self, call: Any) -> None:  # the stubs are not typed
        self._call = call
        self._builder = ReplyBuilder()

    def __repr__(self) -> str:
        state = "ended" if self._builder.is_finished else "open"
        return f"<{type(self).__name__} {state} {len(self.text)} characters>"

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
            _raise(error)
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
            _raise(error)
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


class Client:
    """Talks to one server; use it in a `with` block, from any number of threads."""

    def __init__(self, address: str = DEFAULT_ADDRESS) -> None:
        """Connect to HOST:PORT, at the first call."""
        self._address = address
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = _stub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    def __repr__(self) -> str:
        return f"<Client {self._address}>"

    def __enter__(self) -> Self:
        """Own the connection until the block is left."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection; open calls are cancelled."""
        self._channel.close()

    def generate(
        self,
        prompt: str | None = None,
        *,
        token_ids: Iterable[int] | None = None,
        messages: Iterable[Message] | None = None,
        **options: Unpack[Options],
    ) -> Reply:
        """Generate a whole reply to exactly one of a text, token ids or a chat.

        Raises:
            ClientError: the call failed.
            ValueError: there is not exactly one prompt, or a value does not fit the wire.
        """
        wanted = Prompt(text=prompt, token_ids=token_ids, messages=messages)
        message = encode_request(pb.GenerateRequest, wanted, options)
        try:
            reply = self._stub.Generate(message, timeout=options.get("timeout"))
        except grpc.RpcError as error:
            _raise(error)
        return decode_reply(reply)

    def stream(
        self,
        prompt: str | None = None,
        *,
        token_ids: Iterable[int] | None = None,
        messages: Iterable[Message] | None = None,
        **options: Unpack[Options],
    ) -> ReplyStream:
        """Generate a reply and stream it; iterating raises what `generate` would."""
        wanted = Prompt(text=prompt, token_ids=token_ids, messages=messages)
        message = encode_request(pb.StreamGenerateRequest, wanted, options)
        return ReplyStream(self._stub.StreamGenerate(message, timeout=options.get("timeout")))

    def tokenize(
        self, prompt: str | None = None, *, messages: Iterable[Message] | None = None
    ) -> tuple[int, ...]:
        """Return the ids that `generate` would run for a text or a chat."""
        message = encode_tokenize(Prompt(text=prompt, messages=messages))
        return tuple(self._ask(self._stub.Tokenize, message).token_ids)

    def detokenize(self, token_ids: Iterable[int], *, keep_special: bool = False) -> str:
        """Return the text of the ids."""
        message = pb.DetokenizeRequest(token_ids=token_ids, keep_special=keep_special)
        text: str = self._ask(self._stub.Detokenize, message).text
        return text

    def model(self) -> ModelCard:
        """Describe the model, its limits, and the default of every option."""
        return decode_card(self._ask(self._stub.GetModel, pb.GetModelRequest()))

    def health(self) -> bool:
        """Say whether the server runs requests."""
        answer = self._ask(self._health.Check, health_pb2.HealthCheckRequest())
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def _ask(self, method: Any, message: object) -> Any:  # the stubs are not typed
        try:
            return method(message, timeout=_ASK_TIMEOUT_S)
        except grpc.RpcError as error:
            _raise(error)


class AsyncClient:
    """Talks to one server from one event loop; use it in an `async with` block."""

    def __init__(self, address: str = DEFAULT_ADDRESS) -> None:
        """Connect to HOST:PORT, at the first call."""
        self._address = address
        self._channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = _stub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    def __repr__(self) -> str:
        return f"<AsyncClient {self._address}>"

    async def __aenter__(self) -> Self:
        """Own the connection until the block is left."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def generate(
        self,
        prompt: str | None = None,
        *,
        token_ids: Iterable[int] | None = None,
        messages: Iterable[Message] | None = None,
        **options: Unpack[Options],
    ) -> Reply:
        """Generate a whole reply to exactly one of a text, token ids or a chat.

        Raises:
            ClientError: the call failed.
            ValueError: there is not exactly one prompt, or a value does not fit the wire.
        """
        wanted = Prompt(text=prompt, token_ids=token_ids, messages=messages)
        message = encode_request(pb.GenerateRequest, wanted, options)
        try:
            reply = await self._stub.Generate(message, timeout=options.get("timeout"))
        except grpc.RpcError as error:
            _raise(error)
        return decode_reply(reply)

    def stream(
        self,
        prompt: str | None = None,
        *,
        token_ids: Iterable[int] | None = None,
        messages: Iterable[Message] | None = None,
        **options: Unpack[Options],
    ) -> AsyncReplyStream:
        """Generate a reply and stream it; iterating raises what `generate` would."""
        wanted = Prompt(text=prompt, token_ids=token_ids, messages=messages)
        message = encode_request(pb.StreamGenerateRequest, wanted, options)
        call = self._stub.StreamGenerate(message, timeout=options.get("timeout"))
        return AsyncReplyStream(call)

    async def tokenize(
        self, prompt: str | None = None, *, messages: Iterable[Message] | None = None
    ) -> tuple[int, ...]:
        """Return the ids that `generate` would run for a text or a chat."""
        message = encode_tokenize(Prompt(text=prompt, messages=messages))
        return tuple((await self._ask(self._stub.Tokenize, message)).token_ids)

    async def detokenize(self, token_ids: Iterable[int], *, keep_special: bool = False) -> str:
        """Return the text of the ids."""
        message = pb.DetokenizeRequest(token_ids=token_ids, keep_special=keep_special)
        text: str = (await self._ask(self._stub.Detokenize, message)).text
        return text

    async def model(self) -> ModelCard:
        """Describe the model, its limits, and the default of every option."""
        return decode_card(await self._ask(self._stub.GetModel, pb.GetModelRequest()))

    async def health(self) -> bool:
        """Say whether the server runs requests."""
        answer = await self._ask(self._health.Check, health_pb2.HealthCheckRequest())
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def _ask(self, method: Any, message: object) -> Any:  # the stubs are not typed
        try:
            return await method(message, timeout=_ASK_TIMEOUT_S)
        except grpc.RpcError as error:
            _raise(error)


def _stub(channel: grpc.Channel | grpc.aio.Channel) -> Any:  # generated, and not typed
    return inference_pb2_grpc.InferenceServiceStub(channel)  # type: ignore[no-untyped-call]


def _raise(error: grpc.RpcError) -> NoReturn:
    # Both kinds of calls raise what has these three; grpc's own types do not say so.
    call: Any = error
    status = read_status(call.code(), call.details() or "", call.trailing_metadata() or ())
    raise to_client_error(status) from None


def _raise_if_call_cancelled(error: asyncio.CancelledError) -> NoReturn:
    """Raise what `cancel` did to the call, unless it is the task that is cancelled."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise error
    status = Status(code=grpc.StatusCode.CANCELLED, message="the reply was cancelled")
    raise CallCancelled(status) from None
