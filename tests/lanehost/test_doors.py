import asyncio
import time

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lanehost.door.gate import Gate
from lanehost.doors import Doors, HealthObserver
from lanehost.errors import RankGroupLost, StartupFailed
from lanehost.metrics.metrics import Metrics
from lanehost.settings import RankGroupSettings, ServeSettings
from lanehost.v1 import inference_pb2, inference_pb2_grpc
from tests.support.metered import read_page

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def make_doors(tmp_path, **values):
    ranks = RankGroupSettings(model_path=tmp_path)
    metrics = Metrics(clock=time.monotonic, version="1.2.3")
    return Doors(metrics, ServeSettings(ranks=ranks, **{"port": 0, "http_port": 0} | values))


async def health_of(address):
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return (await stub.Check(health_pb2.HealthCheckRequest())).status


async def test_health_can_be_asked_from_the_first_second_and_follows_what_is_told(tmp_path):
    async with make_doors(tmp_path) as doors:
        address = doors.addresses.grpc
        assert await health_of(address) == NOT_SERVING
        doors.set_serving()
        assert await health_of(address) == SERVING
        doors.set_not_serving()
        assert await health_of(address) == NOT_SERVING


async def test_while_the_gate_is_shut_http_answers_503(tmp_path):
    async with make_doors(tmp_path) as doors, httpx.AsyncClient() as client:
        health = await client.get(f"http://{doors.addresses.http}/health")
        models = await client.get(f"http://{doors.addresses.http}/v1/models")
    assert health.status_code == 503
    assert models.status_code == 503
    assert "still loading" in models.text


async def test_while_the_gate_is_shut_metrics_are_told_and_those_who_come_by_any_door_are_counted(
    tmp_path,
):
    async with make_doors(tmp_path) as doors, httpx.AsyncClient() as client:
        url = f"http://{doors.addresses.http}"
        await client.post(f"{url}/v1/completions", json={"model": "m", "prompt": "hello"})
        async with grpc.aio.insecure_channel(doors.addresses.grpc) as channel:
            stub = inference_pb2_grpc.InferenceServiceStub(channel)
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.Generate(inference_pb2.GenerateRequest(text="hello"))
        told = read_page((await client.get(f"{url}/metrics")).text)
    assert told["lanehost_serving",] == told["lanehost_draining",] == 0
    assert told["lanehost_requests_refused_total", "Starting"] == 2


async def test_without_an_http_port_there_is_no_http_door(tmp_path):
    async with make_doors(tmp_path, http_port=None) as doors:
        assert doors.addresses.http is None
        assert await health_of(doors.addresses.grpc) == NOT_SERVING


@pytest.mark.parametrize("which", ["port", "http_port"])
async def test_a_taken_port_is_refused_by_name_and_the_other_one_is_given_back(tmp_path, which):
    async with make_doors(tmp_path) as doors:
        addresses = doors.addresses
        taken = addresses.grpc if which == "port" else addresses.http
        port = int(taken.rsplit(":", 1)[1])
        with pytest.raises(StartupFailed, match=str(port)):
            async with make_doors(tmp_path, **{which: port}):
                pass


async def test_stop_is_harmless_when_repeated_and_frees_both_ports(tmp_path):
    async with make_doors(tmp_path) as doors:
        addresses = doors.addresses
        for _ in range(2):
            await doors.stop(grace_s=0)
    ports = [int(address.rsplit(":", 1)[1]) for address in (addresses.grpc, addresses.http)]
    async with make_doors(tmp_path, port=ports[0], http_port=ports[1]):
        pass


async def test_a_stop_that_was_cancelled_is_finished_on_leaving(tmp_path):
    async with make_doors(tmp_path) as doors:
        stopping = asyncio.create_task(doors.stop(grace_s=5))
        await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(f"http://{doors.addresses.http}/health")


async def test_an_address_of_ipv6_is_said_in_brackets(tmp_path):
    async with make_doors(tmp_path, host="::1") as doors:
        assert doors.addresses.grpc.startswith("[::1]:")
        assert await health_of(doors.addresses.grpc) == NOT_SERVING
        async with httpx.AsyncClient() as client:
            reply = await client.get(f"http://{doors.addresses.http}/health")
        assert reply.status_code == 503


class SaidServing:
    """Stands for the doors: notes what health was told."""

    def __init__(self):
        self.said = []

    def set_serving(self):
        self.said.append(True)

    def set_not_serving(self):
        self.said.append(False)


class StandIn:
    """Stands for the real door."""

    is_open = True

    def is_serving(self):
        return self.is_open


@pytest.mark.parametrize("is_open", [True, False])
def test_health_is_not_serving_from_a_loss_to_the_next_epoch_and_stays_so_in_a_drain(is_open):
    gate, doors, door = Gate(), SaidServing(), StandIn()
    gate.open(door)
    health = HealthObserver(gate, doors)
    health.group_lost(RankGroupLost("gone", epoch=1, rank=0))
    assert (gate.is_serving(), gate.is_ending, doors.said) == (False, False, [False])
    door.is_open = is_open
    health.group_formed(2)
    assert (gate.is_serving(), gate.is_ending) == (is_open, not is_open)
    assert doors.said == [False, True][: 1 + is_open]


async def test_a_drain_that_has_begun_stays_whatever_becomes_of_the_ranks(tmp_path):
    metrics = Metrics(clock=time.monotonic, version="1.2.3")
    metrics.gate.open(StandIn())
    settings = ServeSettings(ranks=RankGroupSettings(model_path=tmp_path), port=0, http_port=0)
    async with Doors(metrics, settings) as doors, httpx.AsyncClient() as client:
        doors.set_serving()
        url = f"http://{doors.addresses.http}/health"
        assert (await client.get(url)).status_code == 200
        doors.announce_end()
        health = HealthObserver(metrics.gate, doors)
        health.group_lost(RankGroupLost("gone", epoch=1, rank=0))
        health.group_formed(2)
        assert (await client.get(url)).status_code == 503
        assert await health_of(doors.addresses.grpc) == NOT_SERVING
