import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lanehost.server.health import SERVICE
from tests.support.fake_door import FakeDoor
from tests.support.served_door import Served, serve

Status = health_pb2.HealthCheckResponse
WAIT_S = 5


@pytest.fixture
async def served():
    async with serve(FakeDoor()) as running:
        yield running


async def _next(call) -> int:
    return (await asyncio.wait_for(call.read(), WAIT_S)).status


def _watch(served: Served, name: str = ""):
    stub = health_pb2_grpc.HealthStub(served.channel)
    return stub.Watch(health_pb2.HealthCheckRequest(service=name))


@pytest.mark.parametrize("name", ["", "lanehost.v1.InferenceService"])
async def test_check_follows_the_state(served: Served, name: str) -> None:
    stub = health_pb2_grpc.HealthStub(served.channel)
    request = health_pb2.HealthCheckRequest(service=name)
    assert (await stub.Check(request)).status == Status.SERVING
    served.health.set_not_serving()
    assert (await stub.Check(request)).status == Status.NOT_SERVING


def test_the_name_is_the_one_of_the_wire() -> None:
    assert SERVICE == "lanehost.v1.InferenceService"


async def test_check_of_a_service_that_is_not_here_is_not_found(served: Served) -> None:
    stub = health_pb2_grpc.HealthStub(served.channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Check(health_pb2.HealthCheckRequest(service="no.Such"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "no.Such" in caught.value.details()


@pytest.mark.parametrize("name", ["", SERVICE])
async def test_watch_says_the_state_and_every_change(served: Served, name: str) -> None:
    call = _watch(served, name)
    assert await _next(call) == Status.SERVING
    served.health.set_not_serving()
    assert await _next(call) == Status.NOT_SERVING
    served.health.set_serving()
    assert await _next(call) == Status.SERVING


async def test_watch_does_not_repeat_a_state(served: Served) -> None:
    call = _watch(served)
    assert await _next(call) == Status.SERVING
    served.health.set_serving()
    served.health.set_serving()
    await asyncio.sleep(0)
    served.health.set_not_serving()
    assert await _next(call) == Status.NOT_SERVING


async def test_a_watcher_that_leaves_harms_no_other(served: Served) -> None:
    leaver, stayer = _watch(served), _watch(served)
    assert await _next(leaver) == await _next(stayer) == Status.SERVING
    leaver.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaver.read()
    # One more call on the same connection: the server has seen the cancel once it is answered.
    await health_pb2_grpc.HealthStub(served.channel).Check(health_pb2.HealthCheckRequest())
    served.health.set_not_serving()
    assert await _next(stayer) == Status.NOT_SERVING


async def test_watch_of_a_service_that_is_not_here_says_so_and_stays(served: Served) -> None:
    call = _watch(served, "no.Such")
    assert await _next(call) == Status.SERVICE_UNKNOWN
    served.health.set_not_serving()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call.read(), 0.05)


async def test_close_says_not_serving_and_ends_every_watch(served: Served) -> None:
    calls = [_watch(served), _watch(served, "no.Such")]
    assert [await _next(call) for call in calls] == [Status.SERVING, Status.SERVICE_UNKNOWN]
    served.health.close()
    assert await _next(calls[0]) == Status.NOT_SERVING
    for call in calls:
        assert await asyncio.wait_for(call.read(), WAIT_S) is grpc.aio.EOF


async def test_nothing_serves_again_after_close(served: Served) -> None:
    served.health.close()
    served.health.set_serving()
    stub = health_pb2_grpc.HealthStub(served.channel)
    assert (await stub.Check(health_pb2.HealthCheckRequest())).status == Status.NOT_SERVING
