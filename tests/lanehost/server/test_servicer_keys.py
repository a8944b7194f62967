"""How a key comes in over gRPC; what it opens is the door's to say."""

import asyncio

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from lanehost.keys import KeyRing, Scope, digest_of
from lanehost.v1 import inference_pb2 as pb
from tests.support.door_rig import DoorRig
from tests.support.fake_door import FakeDoor
from tests.support.served_door import serve

KEY = "key-of-team-a"
CALLS = {
    "Generate": pb.GenerateRequest(text="hi"),
    "StreamGenerate": pb.StreamGenerateRequest(text="hi"),
    "Tokenize": pb.TokenizeRequest(text="hi"),
    "Detokenize": pb.DetokenizeRequest(token_ids=[65]),
    "GetModel": pb.GetModelRequest(),
}
WRONG = {
    "none": (),
    "unknown": (("authorization", "Bearer other"),),
    "no scheme": (("authorization", KEY),),
    "another scheme": (("authorization", f"Basic {KEY}"),),
    "too long": (("authorization", "Bearer " + "k" * 513),),
    "several": (("authorization", f"Bearer {KEY}"), ("authorization", f"Bearer {KEY}")),
    "another header": (("x-api-key", KEY),),
}


async def _answer(served, method: str, metadata) -> object:
    call = getattr(served.stub, method)(CALLS[method], metadata=metadata)
    if isinstance(call, grpc.aio.UnaryUnaryCall):
        return await call
    return [event async for event in call]


async def _refused(served, method: str, metadata) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(_answer(served, method, metadata), 10)
    return caught.value


def _reason(error: grpc.aio.AioRpcError) -> str:
    class Call:
        code = error.code
        details = error.details
        trailing_metadata = error.trailing_metadata

    info = error_details_pb2.ErrorInfo()
    assert rpc_status.from_call(Call()).details[0].Unpack(info)
    return info.reason


@pytest.mark.parametrize("method", CALLS)
async def test_every_call_wants_the_key(method: str) -> None:
    door = FakeDoor(key=KEY)
    async with serve(door) as served:
        for wrong in WRONG.values():
            seen = await _refused(served, method, wrong)
            assert seen.code() is grpc.StatusCode.UNAUTHENTICATED
            assert _reason(seen) == "UNAUTHENTICATED"
        assert door.requests == []
        for scheme in ("Bearer", "bearer"):
            await _answer(served, method, (("authorization", f"{scheme} {KEY}"),))


async def test_all_wrong_ways_are_answered_in_the_same_words() -> None:
    ring = KeyRing(scopes=(Scope(name="a", key_digests=(digest_of(KEY),)),))
    async with serve(DoorRig(keys=ring).door) as served:
        said = {(await _refused(served, "GetModel", wrong)).details() for wrong in WRONG.values()}
    assert said == {"this server wants a key that it knows, as authorization: Bearer KEY"}


async def test_a_stranger_s_message_is_not_parsed() -> None:
    async with serve(FakeDoor(key=KEY)) as served:
        call = served.channel.unary_unary("/lanehost.v1.InferenceService/Generate")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"\xff this is no message")
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_the_door_gets_the_key_and_no_header_of_another_form() -> None:
    door = FakeDoor()
    async with serve(door) as served:
        await _answer(served, "Generate", (("authorization", f"Bearer {KEY}"),))
        await _answer(served, "Generate", (("authorization", "Basic eDp5"),))
    assert [request.key for request in door.requests] == [KEY, None]
    assert KEY not in repr(door.requests)


async def test_health_is_open() -> None:
    async with serve(FakeDoor(key=KEY)) as served:
        stub = health_pb2_grpc.HealthStub(served.channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
