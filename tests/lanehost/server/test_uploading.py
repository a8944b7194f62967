"""Uploads over real gRPC: in pieces, bounded, and every refusal as a status."""

import asyncio

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from lanehost.errors import ImageRefused, InvalidRequest, Overloaded
from lanehost.server.uploading import UploadReader
from lanehost.v1 import inference_pb2 as pb
from tests.support.fake_door import CARD, SEEING, FakeDoor
from tests.support.served_door import serve

MIB = 1 << 20


async def pieces(*contents, ends=True):
    for data in contents:
        yield pb.UploadImageRequest(data=data)
    if not ends:
        await asyncio.Event().wait()


async def raw(*contents):
    async for piece in pieces(*contents):
        yield piece.SerializeToString()


async def test_the_pieces_are_one_file_and_the_reply_names_it():
    door = FakeDoor(card=SEEING)
    async with serve(door) as served:
        reply = await served.stub.UploadImage(pieces(b"ab", b"", b"cd"))
    assert door.uploads == [b"abcd"]
    assert (reply.upload_id, reply.lifetime_s) == ("upload-1", 60.0)


async def test_one_that_is_too_long_is_refused_while_it_is_sent():
    door = FakeDoor(card=SEEING)
    async with serve(door) as served:
        call = served.stub.UploadImage(pieces(bytes(MIB), b"x", ends=False))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(call, 10)
    status = rpc_status.from_call(_Call(caught.value))
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (info.reason, info.metadata["field"]) == ("IMAGE_REFUSED", "images[1]")
    assert "has at least 1048577 bytes, limit 1048576" in caught.value.details()
    assert door.uploads == []


class _Call:
    def __init__(self, error):
        self.code, self.details = error.code, error.details
        self.trailing_metadata = error.trailing_metadata


async def test_what_the_door_refuses_is_its_status():
    door = FakeDoor(card=SEEING, refusal=Overloaded("full", retry_after_s=1.0))
    async with serve(door) as served:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.stub.UploadImage(pieces(b"a"))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_model_without_images_has_nothing_read():
    door = FakeDoor(card=CARD, refusal=ImageRefused("images[1]", "the model takes no images"))
    async with serve(door) as served:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(served.stub.UploadImage(pieces(bytes(MIB), ends=False)), 10)
    assert "the model takes no images" in caught.value.details()


async def test_a_stranger_s_upload_is_not_read():
    async with serve(FakeDoor(card=SEEING, key="secret")) as served:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await served.stub.UploadImage(pieces(b"a"))
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_pieces_that_are_no_message_are_refused():
    with pytest.raises(InvalidRequest, match="are not such a message"):
        await UploadReader().read(_one(b"\xff"), limit=9)


async def _one(wire):
    yield wire


async def test_all_uploads_together_are_bounded_and_give_back_what_they_took():
    reader = UploadReader(max_bytes=10)
    gate = asyncio.Event()

    async def slow():
        async for piece in raw(b"123456"):
            yield piece
        await gate.wait()

    first = asyncio.create_task(reader.read(slow(), limit=100))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="uploads in progress have 12 bytes, limit 10"):
        await reader.read(raw(b"123456"), limit=100)
    gate.set()
    assert await first == b"123456"
    assert repr(reader) == "<UploadReader 0/10 bytes>"


async def test_one_that_stalls_is_given_up():
    async def stalls():
        async for piece in raw(b"1"):
            yield piece
        await asyncio.Event().wait()

    reader = UploadReader(timeout_s=0.01)
    with pytest.raises(Exception, match="deadline passed in phase upload"):
        await reader.read(stalls(), limit=100)
    assert repr(reader).startswith("<UploadReader 0/")


async def test_a_message_of_many_bytes_of_images_is_parsed_and_one_of_text_is_not() -> None:
    door = FakeDoor(card=SEEING)
    image = pb.ContentPart(image=pb.Image(data=bytes(1 << 20)))
    text = pb.ContentPart(text="x" * 7 * (1 << 20))
    seen = []
    async with serve(door) as served:
        for parts in ([image] * 3, [image] * 7, [image, text]):
            message = pb.ChatMessage(role=pb.ROLE_USER, parts=parts)
            call = served.stub.Generate(pb.GenerateRequest(chat=pb.Chat(messages=[message])))
            seen.append(await _code(call))
    assert seen == ["OK", "OK", "OUT_OF_RANGE"]
    assert [len(request.prompt.messages[0].images) for request in door.requests] == [3, 7]


async def _code(call) -> str:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"
