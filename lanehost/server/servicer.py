"""The gRPC face of the door: decode, submit, stream; no rule of its own.

Laws: an accepted job lives inside `async with stream`, so a client that cancels,
leaves or runs out of time takes the one path, its exit. Every call ends with a
status, also when something in here was cancelled that the client did not cancel:
gRPC would then send nothing, and the client would wait for ever. A client that does
not read ends its job, too: its place is not its own for ever.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import wraps
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from lanehost.cancelling import is_cancelling
from lanehost.door.events import reply_events
from lanehost.door.interface import Door, EventStream
from lanehost.door.limits import check_request_bytes, max_text_bytes
from lanehost.door.model_card import ModelCard
from lanehost.errors import Cancelled
from lanehost.fault import record_fault
from lanehost.job import Accepted, Finished, Tokens
from lanehost.keys import bearer_key
from lanehost.server import codec
from lanehost.server.status import to_status
from lanehost.server.uploading import UploadReader
from lanehost.server.wire_size import image_bytes
from lanehost.v1 import inference_pb2 as pb

# A client's own timer runs out a little before the server's, and then it would never hear in
# which phase the time went. The job ends this much earlier, so that the status can travel.
# The share is what gRPC may round a time-out up by when it sends it.
_REPLY_MARGIN_S = 0.05
_REPLY_MARGIN_SHARE = 0.01
_MOST_MARGIN_SHARE = 0.1

# How long one event may wait for a client that does not read.
WRITE_TIMEOUT_S = 120.0

_In = TypeVar("_In", bound=Message)
_Out = TypeVar("_Out", bound=Message)
_Return = TypeVar("_Return")
_Method = Callable[["InferenceServicer", _In, grpc.aio.ServicerContext[_In, _Out]], _Return]


def _call(
    kind: type[_In],
) -> Callable[
    [_Method[_In, _Out, Awaitable[_Return]]],
    Callable[["InferenceServicer", bytes, grpc.aio.ServicerContext[_In, _Out]], Awaitable[_Return]],
]:
    """Make a method the outermost border of a call: bytes in, every error to its status.

    The bytes are parsed here and not by gRPC, which would answer UNKNOWN to a
    message that is none.
    """

    def wrap(
        method: _Method[_In, _Out, Awaitable[_Return]],
    ) -> Callable[
        ["InferenceServicer", bytes, grpc.aio.ServicerContext[_In, _Out]], Awaitable[_Return]
    ]:
        @wraps(method)
        async def run(
            self: "InferenceServicer", wire: bytes, context: grpc.aio.ServicerContext[_In, _Out]
        ) -> _Return:
            async def answer() -> _Return:
                # Asks for the key, too: nothing of a stranger's message is parsed.
                _check_size(kind, wire, self._door.model_card(_key(context)))
                return await method(self, codec.parse(kind, wire), context)

            return await _bordered(answer, context)

        return run

    return wrap


async def _bordered(
    answer: Callable[[], Awaitable[_Return]], context: grpc.aio.ServicerContext[_In, _Out]
) -> _Return:
    """Answer a call, or end it with the status of what was raised: the outermost border."""
    try:
        return await answer()
    except asyncio.CancelledError as error:
        if is_cancelling():  # the client left, or the server stops
            raise
        status = to_status(record_fault(error))
    except Exception as error:  # noqa: BLE001 - the border: logged; ends this call alone
        status = to_status(error)
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic of foreign Rust code is one
        status = to_status(record_fault(error))
    return await context.abort(status.code, status.details, status.trailing_metadata or ())


def _check_size(kind: type[Message], wire: bytes, card: ModelCard) -> None:
    chat = kind.DESCRIPTOR.fields_by_name.get("chat")
    is_long = len(wire) > max_text_bytes(card)
    num_image_bytes = image_bytes(wire, chat.number) if is_long and chat is not None else 0
    check_request_bytes(len(wire), card, num_image_bytes=num_image_bytes)


class InferenceServicer:
    """`lanehost.v1.InferenceService` over a door."""

    def __init__(self, door: Door, *, write_timeout_s: float = WRITE_TIMEOUT_S) -> None:
        self._door = door
        self._write_timeout_s = write_timeout_s
        self._uploads = UploadReader()

    @_call(pb.GenerateRequest)
    async def Generate(  # noqa: N802 - the name is the wire's
        self,
        request: pb.GenerateRequest,
        context: grpc.aio.ServicerContext[pb.GenerateRequest, pb.GenerateResponse],
    ) -> pb.GenerateResponse:
        """Run a request and return the whole reply."""
        async with await self._submit(request, context) as stream:
            return await _collect(stream)

    @_call(pb.StreamGenerateRequest)
    async def StreamGenerate(  # noqa: N802 - the name is the wire's
        self,
        request: pb.StreamGenerateRequest,
        context: grpc.aio.ServicerContext[pb.StreamGenerateRequest, pb.StreamGenerateResponse],
    ) -> None:
        """Run a request and stream the reply.

        Writes to the context, and does not yield: a cancelled write then ends the
        job at once, where a generator would be left hanging until it is collected.
        """
        async with await self._submit(request, context) as stream:
            async for event in reply_events(stream):
                await self._write(context, codec.encode_event(event))

    @_call(pb.ResumeStreamRequest)
    async def ResumeStream(  # noqa: N802 - the name is the wire's
        self,
        request: pb.ResumeStreamRequest,
        context: grpc.aio.ServicerContext[pb.ResumeStreamRequest, pb.ResumeStreamResponse],
    ) -> None:
        """Go on with a stream."""
        resumption = codec.decode_resumption(
            request, timeout_s=_timeout_s(context.time_remaining()), key=_key(context)
        )
        async with await self._door.resume_stream(resumption) as stream:
            async for event in reply_events(stream):
                await self._write(context, codec.encode_resumed(event))

    @_call(pb.TokenizeRequest)
    async def Tokenize(  # noqa: N802 - the name is the wire's
        self,
        request: pb.TokenizeRequest,
        context: grpc.aio.ServicerContext[pb.TokenizeRequest, pb.TokenizeResponse],
    ) -> pb.TokenizeResponse:
        """Return the ids that Generate would run."""
        key = _key(context)
        prompt = codec.decode_tokenize(request, card=self._door.model_card(key))
        token_ids = await self._door.tokenize(prompt, key=key)
        return pb.TokenizeResponse(token_ids=token_ids)

    async def UploadImage(  # noqa: N802 - the name is the wire's
        self,
        pieces: AsyncIterator[bytes],
        context: grpc.aio.ServicerContext[pb.UploadImageRequest, pb.UploadImageResponse],
    ) -> pb.UploadImageResponse:
        """Keep an image for requests to come."""

        async def answer() -> pb.UploadImageResponse:
            key = _key(context)
            images = self._door.model_card(key).images
            # A model without images refuses it as it is: nothing of it is read.
            limit = None if images is None else images.max_image_bytes
            data = b"" if limit is None else await self._uploads.read(pieces, limit=limit)
            return codec.encode_upload(await self._door.upload_image(data, key=key))

        return await _bordered(answer, context)

    @_call(pb.DetokenizeRequest)
    async def Detokenize(  # noqa: N802 - the name is the wire's
        self,
        request: pb.DetokenizeRequest,
        context: grpc.aio.ServicerContext[pb.DetokenizeRequest, pb.DetokenizeResponse],
    ) -> pb.DetokenizeResponse:
        """Return the text of the ids."""
        key, keep_special = _key(context), request.keep_special
        token_ids = codec.decode_detokenize(request, card=self._door.model_card(key))
        text = await self._door.detokenize(token_ids, keep_special=keep_special, key=key)
        return pb.DetokenizeResponse(text=text)

    @_call(pb.GetModelRequest)
    async def GetModel(  # noqa: N802 - the name is the wire's
        self,
        request: pb.GetModelRequest,
        context: grpc.aio.ServicerContext[pb.GetModelRequest, pb.GetModelResponse],
    ) -> pb.GetModelResponse:
        """Describe the model."""
        del request
        return codec.encode_card(self._door.model_card(_key(context)))

    async def _submit(
        self,
        message: pb.GenerateRequest | pb.StreamGenerateRequest,
        context: grpc.aio.ServicerContext[_In, _Out],
    ) -> EventStream:
        key = _key(context)
        request = codec.decode_request(
            message, card=self._door.model_card(key), timeout_s=_timeout_s(context.time_remaining())
        )
        return await self._door.submit(replace(request, key=key))

    async def _write(
        self,
        context: grpc.aio.ServicerContext[_In, _Out],
        event: _Out,
    ) -> None:
        try:
            async with asyncio.timeout(self._write_timeout_s):
                await context.write(event)
        except TimeoutError:
            message = f"the client read nothing for {self._write_timeout_s:g} s"
            raise Cancelled(message) from None


def _key(context: grpc.aio.ServicerContext[_In, _Out]) -> str | None:
    metadata = context.invocation_metadata() or ()
    return bearer_key([str(value) for name, value in metadata if name == "authorization"])


def _timeout_s(remaining_s: float | None) -> float | None:
    if remaining_s is None:
        return None
    margin_s = _REPLY_MARGIN_S + remaining_s * _REPLY_MARGIN_SHARE
    return remaining_s - min(margin_s, remaining_s * _MOST_MARGIN_SHARE)


async def _collect(stream: EventStream) -> pb.GenerateResponse:
    accepted: Accepted | None = None
    tokens: list[Tokens] = []
    finished: Finished | None = None
    async for event in reply_events(stream):
        match event:
            case Accepted():
                accepted = event
            case Tokens():
                tokens.append(event)
            case Finished():  # pragma: no branch - there is no fourth
                finished = event
    assert accepted is not None
    assert finished is not None
    return codec.encode_reply(accepted, tokens, finished)
