"""ResumeStream over real gRPC: which stream, from where, and every refusal as a status."""

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from lanehost.errors import IndexOutOfRange, NotJournaled, Starting, TakenOver, UnknownStream
from lanehost.job import Failed, Prefilled, Tokens
from lanehost.v1 import inference_pb2 as pb
from tests.support.fake_door import FINISHED, REPLY, FakeDoor
from tests.support.served_door import serve

HELD = (Prefilled(cached_tokens=0), Tokens(token_ids=(1,), text="a"))


def ask(request_id="job-7", **fields):
    return pb.ResumeStreamRequest(request_id=request_id, **fields)


async def failed(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in call:
            pass
    error = caught.value
    status = rpc_status.from_call(_Call(error))
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return error.code().name, info.reason, dict(info.metadata)


class _Call:
    def __init__(self, error):
        self.code, self.details = error.code, error.details
        self.trailing_metadata = error.trailing_metadata


async def test_the_events_of_a_stream_that_goes_on_are_those_of_any_stream():
    door = FakeDoor()
    async with serve(door) as served:
        events = [event async for event in served.stub.ResumeStream(ask(next_index=5))]
    assert [event.WhichOneof("event") for event in events] == [
        "accepted",
        *["delta"] * len(REPLY),
        "finished",
    ]
    assert events[0].accepted.request_id == "job-7"
    assert events[-1].finished.usage.completion_tokens == FINISHED.usage.completion_tokens
    (resumption,) = door.resumptions
    assert (resumption.job_id, resumption.next_index) == ("job-7", 5)
    assert resumption.timeout_s is None


async def test_the_first_token_is_wanted_when_no_index_is_named_and_a_deadline_is_told():
    door = FakeDoor()
    async with serve(door) as served:
        [event async for event in served.stub.ResumeStream(ask(), timeout=30)]
    assert door.resumptions[0].next_index == 0
    assert 25 < door.resumptions[0].timeout_s < 30


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (UnknownStream("none"), ("NOT_FOUND", "UNKNOWN_STREAM", {})),
        (
            IndexOutOfRange(have=9, limit=4),
            ("OUT_OF_RANGE", "INDEX_OUT_OF_RANGE", {"have": "9", "limit": "4"}),
        ),
        (TakenOver("elsewhere"), ("ABORTED", "TAKEN_OVER", {})),
        (Starting("loading"), ("UNAVAILABLE", "STARTING", {})),
        (NotJournaled("full", retry_after_s=1.0), ("UNAVAILABLE", "NOT_JOURNALED", {})),
    ],
)
async def test_what_goes_wrong_has_its_status(error, expected):
    for door in (FakeDoor(refusal=error), FakeDoor((Failed(error=error),))):
        async with serve(door) as served:
            assert await failed(served.stub.ResumeStream(ask())) == expected


@pytest.mark.parametrize("request_id", ["", "x" * 129])
async def test_a_stream_must_be_named(request_id):
    door = FakeDoor()
    async with serve(door) as served:
        code, _, metadata = await failed(served.stub.ResumeStream(ask(request_id)))
    assert (code, metadata) == ("INVALID_ARGUMENT", {"field": "request_id"})
    assert door.resumptions == []


async def test_a_client_that_leaves_takes_the_cancel_path():
    door = FakeDoor(HELD)
    async with serve(door) as served:
        call = served.stub.ResumeStream(ask())
        async for event in call:
            if event.WhichOneof("event") == "delta":
                break
        call.cancel()
        await door.streams[0].ended.wait()
    assert door.streams[0].cancelled


async def test_a_key_is_asked_for():
    async with serve(FakeDoor(key="k1")) as served:
        code, _, _ = await failed(served.stub.ResumeStream(ask()))
        assert code == "UNAUTHENTICATED"
        metadata = (("authorization", "Bearer k1"),)
        events = [one async for one in served.stub.ResumeStream(ask(), metadata=metadata)]
        assert events
