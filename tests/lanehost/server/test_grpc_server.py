import asyncio
import socket

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from lanehost.errors import StartupFailed
from lanehost.job import TextPrompt
from lanehost.server.grpc_server import bind_grpc, build_grpc_server
from lanehost.server.health import Health
from lanehost.v1 import inference_pb2 as pb
from tests.support.fake_door import FakeDoor
from tests.support.served_door import serve

MIB = 1024 * 1024
WAIT_S = 10


async def test_a_message_of_5_mib_is_taken() -> None:
    door = FakeDoor()
    async with serve(door) as served:
        await served.stub.Generate(pb.GenerateRequest(text="x" * 5 * MIB))
    assert door.requests[0].prompt == TextPrompt("x" * 5 * MIB)


@pytest.mark.parametrize("method", ["Generate", "StreamGenerate"])
async def test_a_message_of_70_mib_is_refused_with_the_numbers(method: str) -> None:
    door = FakeDoor()
    kind = pb.GenerateRequest if method == "Generate" else pb.StreamGenerateRequest
    async with serve(door) as served:
        call = getattr(served.stub, method)(kind(text="x" * 70 * MIB))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(call if method == "Generate" else call.read(), WAIT_S)
        after = await served.stub.Generate(pb.GenerateRequest(text="x"))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(64 * MIB) in caught.value.details()
    assert after.text == "Hello é"
    assert len(door.requests) == 1


async def test_text_that_is_not_utf8_is_an_invalid_argument() -> None:
    async with serve(FakeDoor()) as served:
        call = served.channel.unary_unary("/lanehost.v1.InferenceService/Generate")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(call(b"\x0a\x02\xff\xfe"), WAIT_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_method_that_is_not_here_is_unimplemented() -> None:
    async with serve(FakeDoor()) as served:
        call = served.channel.unary_unary("/lanehost.v1.InferenceService/NoSuch")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_the_second_server_on_a_port_is_told_the_address() -> None:
    async with serve(FakeDoor()) as served:
        host, port = served.address.split(":")
        second = build_grpc_server(FakeDoor(), Health(), reflection=False)
        with pytest.raises(
            StartupFailed, match=rf"{served.address}: Address already in use \(--host, --port\)$"
        ):
            bind_grpc(second, host, int(port))
        await second.stop(None)


async def test_two_servers_that_bind_at_once_do_not_share_a_port() -> None:
    # Past the look that `bind_grpc` takes first: what is left when two look at the same time.
    async with serve(FakeDoor()) as served:
        second = build_grpc_server(FakeDoor(), Health(), reflection=False)
        with pytest.raises(RuntimeError, match="Failed to bind"):
            second.add_insecure_port(served.address)
        await second.stop(None)


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0", "127.0.0.1"])
async def test_a_port_taken_on_one_address_of_a_host_is_taken(host: str) -> None:
    server = build_grpc_server(FakeDoor(), Health(), reflection=False)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(StartupFailed, match="in use"),
    ):
        bind_grpc(server, host, taken.getsockname()[1])
    await server.stop(None)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1"])
async def test_a_host_that_is_not_ours_is_named(host: str) -> None:
    server = build_grpc_server(FakeDoor(), Health(), reflection=False)
    with pytest.raises(StartupFailed, match=f"{host}:0"):
        bind_grpc(server, host, 0)
    await server.stop(None)


async def test_calls_above_the_bound_are_refused_at_once() -> None:
    door = FakeDoor(events=())
    async with serve(door, max_concurrent_rpcs=2) as served:
        held = [served.stub.StreamGenerate(pb.StreamGenerateRequest(text="a")) for _ in range(2)]
        for call in held:
            await call.read()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(served.stub.GetModel(pb.GetModelRequest()), WAIT_S)
        for call in held:
            call.cancel()
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def _reflected(channel: grpc.aio.Channel) -> set[str]:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    call = stub.ServerReflectionInfo(iter([ask]))
    answer = await asyncio.wait_for(call.read(), WAIT_S)
    call.cancel()
    return {service.name for service in answer.list_services_response.service}


async def test_reflection_lists_the_services_when_asked_for() -> None:
    async with serve(FakeDoor(), reflection=True) as served:
        assert {"lanehost.v1.InferenceService", "grpc.health.v1.Health"} <= await _reflected(
            served.channel
        )


async def test_reflection_is_off_by_default() -> None:
    async with serve(FakeDoor()) as served:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _reflected(served.channel)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_client_may_ping_a_silent_stream() -> None:
    pings = (
        ("grpc.keepalive_time_ms", 1_100),
        ("grpc.keepalive_timeout_ms", 1_000),
        ("grpc.http2.max_pings_without_data", 0),
    )
    async with (
        serve(FakeDoor(events=())) as served,
        grpc.aio.insecure_channel(served.address, options=pings) as channel,
    ):
        call = channel.unary_stream(
            "/lanehost.v1.InferenceService/StreamGenerate",
            request_serializer=pb.StreamGenerateRequest.SerializeToString,
        )(pb.StreamGenerateRequest(text="a"))
        await call.read()
        with pytest.raises(TimeoutError):
            # A server with gRPC's own defaults says GOAWAY after the third ping.
            await asyncio.wait_for(asyncio.shield(asyncio.create_task(call.read())), 6)
        call.cancel()
