"""The Python client, for code that waits and for code that awaits.

    with Client("127.0.0.1:50051") as client:
        print(client.generate("The sky is", max_tokens=16).text)
        with client.stream(messages=[{"role": "user", "content": "Hello"}]) as stream:
            for delta in stream:
                print(delta.text, end="")
        print(stream.reply.usage)

`AsyncClient` is the same with `await`, `async with` and `async for`. A call that fails
raises a `ClientError` (client_errors.py). Leaving a stream's block cancels a reply that
has not ended. A server with keys wants one: `Client(address, key=...)`. Nothing encrypts
it on its way.
"""

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar, Unpack

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lanehost.addresses import parse_address
from lanehost.client_chat import Image, Message, Source, encode_upload, uploaded
from lanehost.client_codec import (
    CHANNEL_OPTIONS,
    Options,
    Prompt,
    Reply,
    decode_card,
    decode_reply,
    encode_detokenize,
    encode_request,
    encode_resumption,
    encode_tokenize,
)
from lanehost.client_errors import translate
from lanehost.client_stream import AsyncReplyStream, ReplyStream
from lanehost.door.model_card import ModelCard
from lanehost.keys import is_key
from lanehost.v1 import inference_pb2 as pb
from lanehost.v1 import inference_pb2_grpc

DEFAULT_ADDRESS = "127.0.0.1:50051"
# For the calls that run no model; generate and stream have the option `timeout`.
_ASK_TIMEOUT_S = 60.0
_SERVING = health_pb2.HealthCheckResponse.SERVING
_Metadata = tuple[tuple[str, str], ...]
_Channel = TypeVar("_Channel", bound=grpc.Channel | grpc.aio.Channel)


class _Connection(Generic[_Channel]):
    """What both kinds of clients share: the channel, the stubs, and whether they are closed."""

    def __init__(self, address: str, channel: _Channel, *, metadata: _Metadata) -> None:
        self._address = address
        self._channel = channel
        self._metadata = metadata
        self._is_closed = False
        self._stubs = _stub(channel)
        self._health_stubs = health_pb2_grpc.HealthStub(channel)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._address}>"

    @property
    def _stub(self) -> Any:  # generated, and not typed
        self._check_open()
        return self._stubs

    @property
    def _health(self) -> Any:  # generated, and not typed
        self._check_open()
        return self._health_stubs

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("this client was closed; make another one")

    def _start(self, method: Any, message: object, options: Options) -> Any:  # not typed
        return method(message, timeout=options.get("timeout"), metadata=self._metadata)

    def _raise(self, error: grpc.RpcError) -> NoReturn:
        raise translate(error, address=self._address) from None


class Client(_Connection[grpc.Channel]):
    """Talks to one server; use it in a `with` block, from any number of threads."""

    def __init__(self, address: str = DEFAULT_ADDRESS, *, key: str | None = None) -> None:
        """Connect to HOST:PORT, at the first call; `key` is sent with every call.

        Raises:
            ValueError: the address is not HOST:PORT, or the key can be none.
        """
        parse_address(address)
        metadata = _metadata(key)
        channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        super().__init__(address, channel, metadata=metadata)

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
        self._is_closed = True
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
            reply = self._start(self._stub.Generate, message, options)
        except grpc.RpcError as error:
            self._raise(error)
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
        call = self._start(self._stub.StreamGenerate, message, options)
        return ReplyStream(call, address=self._address)

    def resume(
        self, request_id: str, next_index: int = 0, *, timeout: float | None = None
    ) -> ReplyStream:
        """Go on with a stream, from the token with this index; its `reply` begins there.

        Raises:
            ValueError: a value does not fit the wire.
        """
        message = encode_resumption(request_id, next_index)
        call = self._stub.ResumeStream(message, timeout=timeout, metadata=self._metadata)
        return ReplyStream(
            call, address=self._address, request_id=request_id, next_index=next_index
        )

    def upload_image(self, source: Image | Source) -> Image:
        """Have the server keep an image, and return one that names it, for any messages.

        Raises:
            ClientError: the call failed: the image is refused, or no more are kept.
            OSError: the file cannot be read.
        """
        return uploaded(self._ask(self._stub.UploadImage, encode_upload(source)))

    def tokenize(
        self, prompt: str | None = None, *, messages: Iterable[Message] | None = None
    ) -> tuple[int, ...]:
        """Return the ids that `generate` would run for a text or a chat."""
        message = encode_tokenize(Prompt(text=prompt, messages=messages))
        return tuple(self._ask(self._stub.Tokenize, message).token_ids)

    def detokenize(self, token_ids: Iterable[int], *, keep_special: bool = False) -> str:
        """Return the text of the ids."""
        message = encode_detokenize(token_ids, keep_special=keep_special)
        text: str = self._ask(self._stub.Detokenize, message).text
        return text

    def model(self) -> ModelCard:
        """Describe the model, its limits, and the default of every option."""
        return decode_card(self._ask(self._stub.GetModel, pb.GetModelRequest()))

    def health(self) -> bool:
        """Say whether the server runs requests."""
        answer = self._ask(self._health.Check, health_pb2.HealthCheckRequest())
        return bool(answer.status == _SERVING)

    def wait_until_serving(self, timeout: float) -> None:
        """Wait until the server runs requests, for `timeout` seconds at most.

        Raises:
            ClientError: the time is over, or nobody answers.
        """
        call = self._health.Watch(health_pb2.HealthCheckRequest(), timeout=timeout)
        try:
            for answer in call:
                if answer.status == _SERVING:
                    return
        except grpc.RpcError as error:
            self._raise(error)
        finally:
            call.cancel()

    def _ask(self, method: Any, message: object) -> Any:  # the stubs are not typed
        try:
            return method(message, timeout=_ASK_TIMEOUT_S, metadata=self._metadata)
        except grpc.RpcError as error:
            self._raise(error)


class AsyncClient(_Connection[grpc.aio.Channel]):
    """Talks to one server from one event loop; use it in an `async with` block."""

    def __init__(self, address: str = DEFAULT_ADDRESS, *, key: str | None = None) -> None:
        """Connect to HOST:PORT, at the first call; `key` is sent with every call.

        Raises:
            ValueError: the address is not HOST:PORT, or the key can be none.
        """
        parse_address(address)
        metadata = _metadata(key)
        channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        super().__init__(address, channel, metadata=metadata)

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
        self._is_closed = True
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
            reply = await self._start(self._stub.Generate, message, options)
        except grpc.RpcError as error:
            self._raise(error)
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
        call = self._start(self._stub.StreamGenerate, message, options)
        return AsyncReplyStream(call, address=self._address)

    def resume(
        self, request_id: str, next_index: int = 0, *, timeout: float | None = None
    ) -> AsyncReplyStream:
        """Go on with a stream, from the token with this index; its `reply` begins there.

        Raises:
            ValueError: a value does not fit the wire.
        """
        message = encode_resumption(request_id, next_index)
        call = self._stub.ResumeStream(message, timeout=timeout, metadata=self._metadata)
        return AsyncReplyStream(
            call, address=self._address, request_id=request_id, next_index=next_index
        )

    async def upload_image(self, source: Image | Source) -> Image:
        """Have the server keep an image, and return one that names it, for any messages.

        Raises:
            ClientError: the call failed: the image is refused, or no more are kept.
            OSError: the file cannot be read.
        """
        return uploaded(await self._ask(self._stub.UploadImage, encode_upload(source)))

    async def tokenize(
        self, prompt: str | None = None, *, messages: Iterable[Message] | None = None
    ) -> tuple[int, ...]:
        """Return the ids that `generate` would run for a text or a chat."""
        message = encode_tokenize(Prompt(text=prompt, messages=messages))
        return tuple((await self._ask(self._stub.Tokenize, message)).token_ids)

    async def detokenize(self, token_ids: Iterable[int], *, keep_special: bool = False) -> str:
        """Return the text of the ids."""
        message = encode_detokenize(token_ids, keep_special=keep_special)
        text: str = (await self._ask(self._stub.Detokenize, message)).text
        return text

    async def model(self) -> ModelCard:
        """Describe the model, its limits, and the default of every option."""
        return decode_card(await self._ask(self._stub.GetModel, pb.GetModelRequest()))

    async def health(self) -> bool:
        """Say whether the server runs requests."""
        answer = await self._ask(self._health.Check, health_pb2.HealthCheckRequest())
        return bool(answer.status == _SERVING)

    async def wait_until_serving(self, timeout: float) -> None:  # noqa: ASYNC109 - as in Client
        """Wait until the server runs requests, for `timeout` seconds at most.

        Raises:
            ClientError: the time is over, or nobody answers.
        """
        call = self._health.Watch(health_pb2.HealthCheckRequest(), timeout=timeout)
        try:
            async for answer in call:
                if answer.status == _SERVING:
                    return
        except grpc.RpcError as error:
            self._raise(error)
        finally:
            call.cancel()

    async def _ask(self, method: Any, message: object) -> Any:  # the stubs are not typed
        try:
            return await method(message, timeout=_ASK_TIMEOUT_S, metadata=self._metadata)
        except grpc.RpcError as error:
            self._raise(error)


def _metadata(key: str | None) -> _Metadata:
    if key is None:
        return ()
    if not is_key(key):
        # What was given is not repeated: it may be most of a key.
        raise ValueError("the key is not 1 to 512 visible characters of ASCII, without spaces")
    return (("authorization", f"Bearer {key}"),)


def _stub(channel: grpc.Channel | grpc.aio.Channel) -> Any:  # generated, and not typed
    return inference_pb2_grpc.InferenceServiceStub(channel)  # type: ignore[no-untyped-call]
