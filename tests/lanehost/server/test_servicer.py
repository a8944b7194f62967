import asyncio
import itertools
import sys
import time

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from structlog.testing import capture_logs

from lanehost.errors import (
    Cancelled,
    DeadlinePassed,
    DoesNotFit,
    Draining,
    InternalFault,
    InvalidRequest,
    NotBuilt,
    Overloaded,
    RankGroupLost,
    ReplyCorrupt,
)
from lanehost.job import Failed, Prefilled, TextPrompt, Tokens
from lanehost.v1 import inference_pb2 as pb
from tests.support.fake_door import FINISHED, REPLY, FakeDoor, FakeStream
from tests.support.served_door import serve

WAIT_S = 5
HELD = (Prefilled(cached_tokens=0), Tokens(token_ids=(1,), text="a"))
ERRORS = [
    (InvalidRequest("max_tokens", "is 0"), "INVALID_ARGUMENT"),
    (DoesNotFit("too long", have=99, limit=10), "OUT_OF_RANGE"),
    (Overloaded("full", retry_after_s=2.5), "RESOURCE_EXHAUSTED"),
    (Cancelled("gone"), "CANCELLED"),
    (DeadlinePassed("prefill"), "DEADLINE_EXCEEDED"),
    (RankGroupLost("rank 0", epoch=3, rank=0), "UNAVAILABLE"),
    (Draining("ending"), "UNAVAILABLE"),
    (ReplyCorrupt("NaN"), "DATA_LOSS"),
    (NotBuilt("tools", "not built"), "UNIMPLEMENTED"),
    (InternalFault("r1"), "INTERNAL"),
]


def _ask(**fields) -> pb.GenerateRequest:
    return pb.GenerateRequest(text="Hi", **fields)


def _ask_streamed(**fields) -> pb.StreamGenerateRequest:
    return pb.StreamGenerateRequest(text="Hi", **fields)


async def _error(call) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(_end(call), WAIT_S)
    return caught.value


async def _end(call) -> None:
    if isinstance(call, grpc.aio.UnaryUnaryCall):
        await call
    else:
        async for _ in call:
            pass


def _info(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    class Call:
        code = error.code
        details = error.details
        trailing_metadata = error.trailing_metadata

    info = error_details_pb2.ErrorInfo()
    assert rpc_status.from_call(Call()).details[0].Unpack(info)
    return info


async def test_generate_returns_the_whole_reply() -> None:
    async with serve(FakeDoor()) as served:
        reply = await served.stub.Generate(_ask())
    assert reply.text == "Hello é"
    assert list(reply.token_ids) == [10, 11, 12, 2]
    assert reply.accepted == pb.Accepted(request_id="job-1", seed=7, prompt_tokens=5)
    assert reply.finished.usage.cached_tokens == 3


async def test_a_stream_is_accepted_then_deltas_then_finished() -> None:
    async with serve(FakeDoor()) as served:
        events = [event async for event in served.stub.StreamGenerate(_ask_streamed())]
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds == ["accepted", "delta", "delta", "delta", "finished"]
    assert "".join(event.delta.text for event in events) == "Hello é"


async def test_accepted_is_sent_before_the_prompt_is_computed() -> None:
    async with serve(FakeDoor(events=())) as served:
        call = served.stub.StreamGenerate(_ask_streamed())
        event = await asyncio.wait_for(call.read(), WAIT_S)
        call.cancel()
    assert event.WhichOneof("event") == "accepted"


async def test_the_door_gets_the_request_as_it_was_sent() -> None:
    door = FakeDoor()
    async with serve(door) as served:
        await served.stub.Generate(_ask(max_tokens=9, stop=pb.StopParams(strings=["x"])))
    (request,) = door.requests
    assert (request.prompt, request.max_tokens) == (TextPrompt("Hi"), 9)
    assert request.stop.strings == ("x",)
    assert request.timeout_s is None


@pytest.mark.parametrize(("error", "code"), ERRORS, ids=lambda value: str(value)[:20])
async def test_a_refusal_is_a_status_with_details(error, code) -> None:
    async with serve(FakeDoor(refusal=error)) as served:
        for call in (served.stub.Generate(_ask()), served.stub.StreamGenerate(_ask_streamed())):
            seen = await _error(call)
            assert seen.code() is grpc.StatusCode[code]
            assert seen.details() == str(error)
            assert _info(seen).domain == "lanehost"


@pytest.mark.parametrize(("error", "code"), ERRORS, ids=lambda value: str(value)[:20])
async def test_a_job_that_fails_ends_with_its_status(error, code) -> None:
    door = FakeDoor(events=(*HELD, Failed(error=error)))
    async with serve(door) as served:
        for call in (served.stub.Generate(_ask()), served.stub.StreamGenerate(_ask_streamed())):
            assert (await _error(call)).code() is grpc.StatusCode[code]


async def test_an_unknown_error_is_internal_and_says_nothing_of_the_prompt() -> None:
    async with serve(FakeDoor(refusal=ValueError("Hi secret"))) as served:
        with capture_logs() as logs:
            seen = await _error(served.stub.Generate(_ask()))
    assert seen.code() is grpc.StatusCode.INTERNAL
    assert logs[0]["record_id"] in seen.details()
    assert "secret" not in f"{seen.details()}{logs}"


async def test_a_cancel_from_within_does_not_hang_the_client() -> None:
    async with serve(FakeDoor(refusal=asyncio.CancelledError())) as served:  # type: ignore[arg-type]
        with capture_logs() as logs:
            codes = [
                (await _error(call)).code()
                for call in (
                    served.stub.Generate(_ask()),
                    served.stub.StreamGenerate(_ask_streamed()),
                    served.stub.Tokenize(pb.TokenizeRequest(text="a")),
                )
            ]
    assert codes == [grpc.StatusCode.INTERNAL] * 3
    assert len(logs) == 3


class _Panic(BaseException):
    """As foreign Rust code raises it: no Exception."""


async def test_a_panic_of_foreign_code_does_not_hang_the_client() -> None:
    async with serve(FakeDoor(refusal=_Panic("secret"))) as served:  # type: ignore[arg-type]
        with capture_logs() as logs:
            seen = [
                await _error(call)
                for call in (
                    served.stub.Generate(_ask()),
                    served.stub.StreamGenerate(_ask_streamed()),
                    served.stub.Tokenize(pb.TokenizeRequest(text="a")),
                )
            ]
    assert [one.code() for one in seen] == [grpc.StatusCode.INTERNAL] * 3
    assert [entry["event"] for entry in logs] == ["internal_fault"] * 3
    assert "secret" not in f"{seen}{logs}"


class _SilentStream(FakeStream):
    """Breaks the protocol: it ends without a last event."""

    async def __aiter__(self):
        yield Prefilled(cached_tokens=0)


class _SilentDoor(FakeDoor):
    async def submit(self, request):
        return _SilentStream("job-1", request, ())


@pytest.mark.parametrize("method", ["Generate", "StreamGenerate"])
async def test_a_job_without_a_last_event_is_our_bug_and_hangs_nobody(method: str) -> None:
    ask = _ask() if method == "Generate" else _ask_streamed()
    async with serve(_SilentDoor()) as served:
        with capture_logs():
            seen = await _error(getattr(served.stub, method)(ask))
    assert seen.code() is grpc.StatusCode.INTERNAL


@pytest.mark.parametrize("method", ["Generate", "StreamGenerate"])
async def test_a_client_that_cancels_ends_its_job(method: str) -> None:
    door = FakeDoor(events=HELD)
    ask = _ask() if method == "Generate" else _ask_streamed()
    async with serve(door) as served:
        call = getattr(served.stub, method)(ask)
        await asyncio.wait_for(door.submitted.wait(), WAIT_S)
        call.cancel()
        await asyncio.wait_for(door.streams[0].ended.wait(), WAIT_S)
    assert door.streams[0].cancelled


LEAVER = """
import sys, time, grpc
from lanehost.v1 import inference_pb2 as pb, inference_pb2_grpc
stub = inference_pb2_grpc.InferenceServiceStub(grpc.insecure_channel(sys.argv[1]))
next(stub.StreamGenerate(pb.StreamGenerateRequest(text="Hi")))
print("accepted", flush=True)
time.sleep(60)
"""


async def test_a_client_that_is_killed_ends_its_job() -> None:
    door = FakeDoor(events=HELD)
    async with serve(door) as served:
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", LEAVER, served.address, stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(30):
            assert await client.stdout.readline() == b"accepted\n"
            client.kill()
            await client.wait()
        await asyncio.wait_for(door.streams[0].ended.wait(), WAIT_S)
    assert door.streams[0].cancelled


async def test_a_job_that_finished_is_not_cancelled() -> None:
    door = FakeDoor()
    async with serve(door) as served:
        await served.stub.Generate(_ask())
    assert not door.streams[0].cancelled


async def test_a_reader_that_does_not_read_stops_its_job_and_no_other() -> None:
    written = itertools.count()

    def endless():
        for index in written:
            yield Tokens(token_ids=(index % 1000,), text="x" * 1000)

    door = FakeDoor(events=endless())
    async with serve(door) as served:
        slow = served.stub.StreamGenerate(_ask_streamed())
        await slow.read()
        await asyncio.wait_for(door.submitted.wait(), WAIT_S)
        await _until_still(written)
        door.events = (*REPLY, FINISHED)
        reply = await asyncio.wait_for(served.stub.Generate(_ask()), WAIT_S)
        slow.cancel()
        await asyncio.wait_for(door.streams[0].ended.wait(), WAIT_S)
    assert reply.text == "Hello é"
    assert door.streams[0].cancelled


async def _until_still(counter: "itertools.count[int]") -> None:
    """Wait until nothing is taken from the counter any more: the write is blocked."""
    async with asyncio.timeout(20):
        seen = ""
        while repr(counter) != seen:
            seen = repr(counter)
            await asyncio.sleep(0.1)


async def test_the_deadline_reaches_the_door_a_little_earlier() -> None:
    door = FakeDoor()
    async with serve(door) as served:
        await served.stub.Generate(_ask(), timeout=30)
    timeout_s = door.requests[0].timeout_s
    assert timeout_s is not None
    assert 29 < timeout_s < 29.8


@pytest.mark.parametrize("method", ["Generate", "StreamGenerate"])
async def test_a_deadline_that_passes_names_its_phase(method: str) -> None:
    door = FakeDoor(events=HELD)
    ask = _ask() if method == "Generate" else _ask_streamed()
    async with serve(door) as served:
        seen = await _error(getattr(served.stub, method)(ask, timeout=0.5))
    assert seen.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert _info(seen).metadata["phase"] == "decode"
    assert door.streams[0].ended.is_set()


async def test_tokenize_and_detokenize_go_through_the_door() -> None:
    async with serve(FakeDoor()) as served:
        tokens = await served.stub.Tokenize(pb.TokenizeRequest(text="AB"))
        plain = await served.stub.Detokenize(pb.DetokenizeRequest(token_ids=[65, 66]))
        special = await served.stub.Detokenize(
            pb.DetokenizeRequest(token_ids=[65], keep_special=True)
        )
    assert list(tokens.token_ids) == [65, 66]
    assert (plain.text, special.text) == ("AB", "<s>A")


async def test_an_id_outside_the_vocabulary_is_named() -> None:
    async with serve(FakeDoor()) as served:
        seen = await _error(served.stub.Detokenize(pb.DetokenizeRequest(token_ids=[1000])))
    assert seen.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert _info(seen).metadata["field"] == "token_ids"


async def test_get_model_describes_the_model() -> None:
    async with serve(FakeDoor()) as served:
        model = await served.stub.GetModel(pb.GetModelRequest())
    assert (model.name, model.context_length) == ("fake-model", 128)


async def test_a_storm_of_cancels_leaves_no_job_behind() -> None:
    door = FakeDoor(events=HELD)
    async with serve(door) as served:
        calls = [served.stub.StreamGenerate(_ask_streamed()) for _ in range(100)]
        for index, call in enumerate(calls):
            if index % 3:
                await call.read()
            call.cancel()
        door.events = (*REPLY, FINISHED)
        await served.stub.Generate(_ask())
        async with asyncio.timeout(WAIT_S):
            for stream in door.streams:
                await stream.ended.wait()


async def _until_taken(served) -> None:
    """Wait until the server has room for one more call."""
    while True:
        try:
            await served.stub.GetModel(pb.GetModelRequest())
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0.01)
        else:
            return


async def test_a_client_that_never_reads_loses_its_place() -> None:
    def endless():
        while True:
            yield Tokens(token_ids=(1,), text="x" * 10_000)

    door = FakeDoor(events=endless())
    async with serve(door, write_timeout_s=0.2, max_concurrent_rpcs=1) as served:
        slow = aiter(served.stub.StreamGenerate(_ask_streamed()))
        await anext(slow)
        await asyncio.wait_for(door.streams[0].ended.wait(), WAIT_S)
        assert door.streams[0].cancelled
        async with asyncio.timeout(WAIT_S):
            await _until_taken(served)  # while the first still reads nothing
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await _end(slow)
    seen = caught.value
    assert seen.code() is grpc.StatusCode.CANCELLED
    assert "read nothing for 0.2 s" in seen.details()


@pytest.mark.parametrize("method", ["Generate", "StreamGenerate", "Tokenize", "Detokenize"])
async def test_a_message_that_is_too_long_for_the_model_is_not_parsed(method: str) -> None:
    door = FakeDoor()
    async with serve(door) as served:
        call = served.channel.unary_unary(f"/lanehost.v1.InferenceService/{method}")
        seen = await _error(call(b"\x0a\x00" * 4 * (1 << 20)))
    assert (seen.code(), door.requests) == (grpc.StatusCode.OUT_OF_RANGE, [])
    assert dict(_info(seen).metadata) == {"have": str(8 << 20), "limit": str(6 << 20)}


async def test_a_dense_message_holds_the_loop_for_a_moment_only() -> None:
    gaps = []

    async def tick() -> None:
        # What this process computes in between: others on the machine have no part in it.
        while True:
            before_s = time.process_time()
            await asyncio.sleep(0.001)
            gaps.append(time.process_time() - before_s)

    wire = pb.GenerateRequest(
        chat=pb.Chat(messages=[pb.ChatMessage()] * (3 * (1 << 20) - 100))
    ).SerializeToString()
    async with serve(FakeDoor()) as served:
        ticking = asyncio.create_task(tick())
        call = served.channel.unary_unary("/lanehost.v1.InferenceService/Generate")
        seen = await _error(call(wire))
        ticking.cancel()
    assert "messages, limit 128" in seen.details()
    assert max(gaps) < 1.0  # generous: a tenth of it here; building the messages took 6 s
