"""The server that ranks dial: strangers out, ports apart, the store over the wire."""

import asyncio
import socket

import grpc
import grpc.aio
import pytest

from lanehost.rank_group.rank_server import RankServer
from lanehost.rank_group.store import RendezvousStore
from ranks.wire import rank_pb2 as pb
from ranks.wire.messages import STORE_METADATA_KEY, Ready
from ranks.wire.rank_pb2_grpc import RankServiceStub
from tests.support.rank_facts import TOKEN, hello, terms
from tests.support.served_ranks import dialled, served_ranks


async def refusal_of(address, message):
    async with dialled(address, message) as call:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call.read()
        return error.value.code(), error.value.details()


@pytest.mark.parametrize(
    ("changes", "says", "is_told"),
    [
        ({"token": "wrong"}, "the token is not this group's", False),
        ({"build": "9"}, "rank 0 runs build 9, the master runs 1.2.3", True),
        ({"world_size": 9}, "rank 0 believes in 9 ranks, the master in 2", True),
        ({"rank": 2}, "rank 2 dialled, there are ranks 0 to 1", True),
    ],
)
async def test_who_is_not_of_this_group_is_refused_by_name(changes, says, is_told):
    async with served_ranks() as served:
        code, details = await refusal_of(served.address, hello(**changes))
        assert (code, details) == (grpc.StatusCode.FAILED_PRECONDITION, says)
        assert served.refused == ([says] if is_told else [])
        assert served.links.empty()


async def test_a_rank_number_is_given_once():
    async with served_ranks() as served, dialled(served.address, hello()):
        await served.next_link()
        _, details = await refusal_of(served.address, hello())
        assert details == "rank 0 has dialled already"
        assert served.links.empty()


async def test_a_stream_that_does_not_begin_with_hello_is_refused():
    async with served_ranks() as served:
        code, details = await refusal_of(served.address, Ready(epoch=1))
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert details == "the first message is Ready, not Hello"


async def test_bytes_and_messages_cross_the_stream():
    async with served_ranks() as served, dialled(served.address, hello()) as call:
        (await served.next_link()).send(b"a plan")
        assert await call.read() == b"a plan"


async def test_a_rank_that_is_gone_is_noticed_at_once():
    async with served_ranks() as served:
        async with dialled(served.address, hello()):
            await served.next_link()
        assert "rank 0" in await asyncio.wait_for(served.ends.get(), 5)


async def test_a_rank_number_that_is_expected_again_may_dial_again():
    async with served_ranks() as served:
        async with dialled(served.address, hello()):
            await served.next_link()
        _, details = await refusal_of(served.address, hello())
        assert details == "rank 0 has dialled already"
        served.server.expect(0)
        async with dialled(served.address, hello(pid=2)):
            assert (await served.next_link()).pid == 2


async def test_two_masters_at_once_have_ports_of_their_own():
    async with served_ranks() as first, served_ranks() as second:
        assert first.address != second.address
        async with dialled(first.address, hello()), dialled(second.address, hello()):
            await first.next_link()
            await second.next_link()


async def test_a_port_is_never_shared():
    async with served_ranks() as served:
        # gRPC's default would share: both sockets must want it, and ours does not.
        server = grpc.aio.server()
        with pytest.raises(RuntimeError):
            server.add_insecure_port(served.address)


async def test_a_stopped_server_gives_its_port_back():
    server = RankServer(
        terms=terms(),
        store=RendezvousStore(),
        on_link=lambda _: None,
        on_refused=lambda _: None,
    )
    host, port = (await server.start()).split(":")
    await server.stop()
    with socket.create_server((host, int(port))):
        pass


async def test_a_server_that_never_started_can_be_stopped():
    await RankServer(
        terms=terms(),
        store=RendezvousStore(),
        on_link=lambda _: None,
        on_refused=lambda _: None,
    ).stop()


METADATA = ((STORE_METADATA_KEY, TOKEN),)


async def test_the_store_speaks_over_the_wire():
    async with served_ranks() as served, grpc.aio.insecure_channel(served.address) as channel:
        stub = RankServiceStub(channel)
        waiting = asyncio.ensure_future(
            stub.StoreGet(pb.StoreGetRequest(key="k", timeout_s=5), metadata=METADATA)
        )
        await stub.StoreSet(pb.StoreSetRequest(key="k", value=b"\x00v"), metadata=METADATA)
        assert (await waiting).value == b"\x00v"
        added = await stub.StoreAdd(pb.StoreAddRequest(key="n", amount=3), metadata=METADATA)
        assert added.value == 3
        request = pb.StoreCompareSetRequest(key="k", expected=b"no", desired=b"x")
        assert (await stub.StoreCompareSet(request, metadata=METADATA)).value == b"\x00v"
        check = pb.StoreCheckRequest(keys=["k", "n"])
        assert (await stub.StoreCheck(check, metadata=METADATA)).present
        deleted = await stub.StoreDelete(pb.StoreDeleteRequest(key="k"), metadata=METADATA)
        assert deleted.removed
        assert len(served.store) == 1


@pytest.mark.parametrize(
    ("request_", "metadata", "code", "says"),
    [
        (pb.StoreGetRequest(key="k"), (), "PERMISSION_DENIED", "token"),
        (
            pb.StoreGetRequest(key="k"),
            ((STORE_METADATA_KEY, "wrong"),),
            "PERMISSION_DENIED",
            "token",
        ),
        (
            pb.StoreGetRequest(key="k", timeout_s=0.01),
            METADATA,
            "DEADLINE_EXCEEDED",
            "key 'k' was not set within 0.01 s",
        ),
        (
            pb.StoreGetRequest(key="k", timeout_s=1e9),
            METADATA,
            "INVALID_ARGUMENT",
            "timeout_s: is 1000000000.0, allowed is 0 to 300",
        ),
    ],
)
async def test_a_store_call_that_may_not_be_is_refused_by_name(request_, metadata, code, says):
    async with served_ranks() as served, grpc.aio.insecure_channel(served.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await RankServiceStub(channel).StoreGet(request_, metadata=metadata)
        assert error.value.code().name == code
        assert says in error.value.details()
