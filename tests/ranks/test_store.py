"""The rank's half of the rendezvous store, against the master's half over the wire."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import pytest
import torch
from torch.distributed.distributed_c10d import PrefixStore

from ranks.abort import Abort
from ranks.errors import GivenUp, RendezvousFailed
from ranks.link import open_channel
from ranks.process_group import form_group
from ranks.shards import Place
from ranks.store import MasterStore
from tests.support.rank_facts import TOKEN
from tests.support.served_ranks import served_ranks


@contextmanager
def running_server():
    """Serve from a thread, as calls of the rank block theirs; gives the address."""
    up, addresses = threading.Event(), []
    loop = asyncio.new_event_loop()
    end = asyncio.Event()

    async def serve():
        async with served_ranks() as served:
            addresses.append(served.address)
            up.set()
            await end.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert up.wait(10)
    try:
        yield addresses[0]
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(10)
        loop.close()


@pytest.fixture(scope="module")
def address():
    with running_server() as address:
        yield address


@pytest.fixture
def make_store(address):
    channels = []

    def make(token=TOKEN, timeout_s=5.0):
        channels.append(open_channel(address))
        return MasterStore(channels[-1], token=token, timeout_s=timeout_s)

    yield make
    for channel in channels:
        channel.close()


def test_what_one_rank_sets_another_gets(make_store):
    make_store().set("a", b"\x00\xff")
    assert make_store().get("a") == b"\x00\xff"


def test_torch_reaches_the_store_through_a_prefix(make_store):
    held = make_store()
    PrefixStore("epoch7", held).set("key", "value")
    assert held.get("epoch7/key") == b"value"


def test_counters_checks_and_comparisons_are_the_masters(make_store):
    store, other = make_store(), make_store()
    assert [store.add("n", 2), other.add("n", 3)] == [2, 5]
    assert store.check(["n"])
    assert not store.check(["n", "never"])
    assert store.compare_set("c", "", "first") == b"first"
    assert other.compare_set("c", "", "second") == b"first"
    assert store.delete_key("c")
    assert not store.delete_key("c")


def test_several_keys_at_once(make_store):
    store = make_store()
    store.multi_set(["m1", "m2"], [b"1", b"2"])
    assert store.multi_get(["m2", "m1"]) == [b"2", b"1"]
    store.wait(["m1", "m2"], timedelta(seconds=1))


@pytest.mark.parametrize("how", ["get", "wait", "wait_for", "default"])
def test_every_wait_has_a_bound(make_store, how):
    store = make_store(timeout_s=0.05)
    acts = {
        "get": lambda: store.get("never"),
        "wait": lambda: store.wait(["never"]),
        "wait_for": lambda: make_store().wait(["never"], timedelta(milliseconds=50)),
        "default": lambda: (store.set_timeout(timedelta(milliseconds=20)), store.get("never")),
    }
    with pytest.raises(RendezvousFailed, match="DEADLINE_EXCEEDED: key 'never' was not set"):
        acts[how]()


def test_a_stranger_gets_nothing(make_store):
    with pytest.raises(RendezvousFailed, match="PERMISSION_DENIED"):
        make_store(token="wrong").set("a", b"")


def test_what_torch_calls_the_extended_api_is_not_offered(make_store):
    assert not make_store().has_extended_api()


def test_two_ranks_form_a_group_through_the_master(make_store):
    def live(rank):
        group = form_group(
            make_store(),
            Place(epoch=3, rank=rank, world_size=2),
            collective="gloo",
            device=torch.device("cpu"),
            timeout_s=5,
            abort=Abort(),
        )
        total = group.all_reduce(torch.tensor([rank + 1]))
        group.leave()
        return total.item()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(live, (0, 1))) == [3, 3]


def test_who_waits_is_woken_when_the_store_is_given_up_and_so_is_who_comes_later(make_store):
    store = make_store(timeout_s=100)
    threading.Timer(0.2, store.give_up).start()
    for _ in range(2):
        with pytest.raises(GivenUp, match="told to leave"):
            store.get("never")
