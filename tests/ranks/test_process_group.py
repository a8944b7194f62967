"""Collectives over gloo: two ranks in two threads, each with a group of its own."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psutil
import pytest
import torch
import torch.distributed as dist
from structlog.testing import capture_logs
from torch.distributed.distributed_c10d import PrefixStore

from ranks.abort import Abort
from ranks.errors import FellowLost, GivenUp, RankError
from ranks.process_group import (
    LoneGroup,
    _make_gloo,
    choose_collective,
    collective_bytes,
    form_group,
    offer_collective,
)
from ranks.shards import Network, Place
from ranks.shared_group import SharedGroup, make_offer
from tests.support.shared_ranks import has_library

CPU = torch.device("cpu")


def join(store, rank, *, epoch=1, timeout_s=5.0, collective="gloo", abort=None):
    return form_group(
        store,
        Place(epoch=epoch, rank=rank, world_size=2),
        collective=collective,
        device=CPU,
        timeout_s=timeout_s,
        abort=abort or Abort(),
    )


def on_two_ranks(act, *, timeout_s=5.0):
    """Run `act(group, rank)` on both ranks of a group; returns both results."""
    store = dist.HashStore()

    def live(rank):
        group = join(store, rank, timeout_s=timeout_s)
        try:
            return act(group, rank)
        finally:
            group.leave()

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(live, (0, 1)))


def test_the_sum_is_the_same_on_every_rank():
    torch.manual_seed(0)
    parts = torch.randn(2, 16, 33)
    sums = on_two_ranks(lambda group, rank: group.all_reduce(parts[rank].clone()))
    assert torch.equal(sums[0], parts[0] + parts[1])
    assert torch.equal(sums[0], sums[1])


@pytest.mark.parametrize(
    ("network", "bound"),
    [
        (Network(host="127.0.0.3"), ("127.0.0.3", None)),
        (Network(interface="lo"), ("127.0.0.1", "lo")),
    ],
)
def test_gloo_listens_where_the_network_says(network, bound):
    store = dist.HashStore()

    def live(rank):
        place = Place(epoch=1, rank=rank, world_size=2, network=network)
        group = form_group(store, place, collective="gloo", device=CPU, timeout_s=5, abort=Abort())
        group.all_reduce(torch.zeros(1))
        listening = {one.laddr.ip for one in psutil.Process().net_connections() if one.laddr}
        group.leave()
        return listening

    with capture_logs() as logs, ThreadPoolExecutor(2) as pool:
        listening, _ = pool.map(live, (0, 1))
    assert bound[0] in listening
    told = [(one["host"], one["interface"]) for one in logs if one["event"] == "gloo_bound"]
    assert told == [bound] * 2


@pytest.mark.parametrize("widths", [(3, 3), (5, 2), (2, 5)])
@pytest.mark.parametrize("num_rows", [1, 4])
def test_columns_are_joined_in_rank_order_on_the_leader_whatever_their_widths(widths, num_rows):
    parts = [torch.arange(num_rows * w).reshape(num_rows, w) + 100 * w for w in widths]
    joined, none = on_two_ranks(lambda group, rank: group.gather_columns(parts[rank]))
    assert torch.equal(joined, torch.cat(parts, dim=-1))
    assert none is None


def test_columns_may_come_with_other_rows_each_time():
    def act(group, rank):
        return [group.gather_columns(torch.full((rows, 2), rank)) for rows in (3, 1, 2)]

    leader, _ = on_two_ranks(act)
    assert [one.shape for one in leader] == [(3, 4), (1, 4), (2, 4)]


def test_another_width_than_before_is_refused_rather_than_awaited():
    def act(group, _rank):
        group.gather_columns(torch.zeros(1, 3))
        with pytest.raises(RankError, match="gathers 4 columns, it gathered 3 before"):
            group.gather_columns(torch.zeros(1, 4))

    on_two_ranks(act)


def test_the_leaders_ids_reach_everyone():
    ids = torch.tensor([[3, -1, 2**40], [0, 0, 0]])
    heard = on_two_ranks(lambda group, rank: group.broadcast_ids(ids[rank].clone()))
    assert all(torch.equal(one, ids[0]) for one in heard)


def test_a_rank_that_never_comes_ends_the_meeting_in_time():
    with pytest.raises(RankError, match="rank 0 could not meet the others over gloo"):
        join(dist.HashStore(), 0, timeout_s=0.2)


def test_a_group_is_formed_only_when_all_have_met_in_a_collective():
    """NCCL connects at its first one, which must not be somebody's first step."""
    store, met = dist.HashStore(), threading.Barrier(2, timeout=10)

    def connect_only():
        backend = _make_gloo(
            PrefixStore("epoch1", store),
            Place(epoch=1, rank=1, world_size=2),
            timedelta(seconds=5),
        )
        met.wait()
        backend.abort()

    def form():
        with pytest.raises(RankError, match="rank 0 could not meet the others"):
            join(store, 0, timeout_s=0.5)
        met.wait()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(connect_only), pool.submit(form)]:
            done.result()


def test_a_rank_that_never_joins_a_collective_ends_it_in_time():
    met = threading.Barrier(2, timeout=10)

    def act(group, rank):
        if rank == 0:
            with pytest.raises(FellowLost, match="rank 1 did not do its part") as error:
                group.all_reduce(torch.zeros(1))
            assert error.value.suspect == 1
        met.wait()

    on_two_ranks(act, timeout_s=0.3)


def test_epochs_do_not_see_each_other():
    # Rank 0 of the old epoch and rank 1 of the new one share a store and never meet.
    store = dist.HashStore()
    errors = []

    def live(rank):
        with pytest.raises(RankError) as error:
            join(store, rank, epoch=rank + 1, timeout_s=0.3)
        errors.append(error.value)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(live, (0, 1)))
    assert len(errors) == 2


def test_one_rank_needs_no_group_and_no_store():
    offer_collective(None, CPU, rank=0, world_size=1)
    assert choose_collective(None, CPU, rank=0, world_size=1) == "none"
    group = form_group(
        None,
        Place(epoch=1, rank=0, world_size=1),
        collective="none",
        device=CPU,
        timeout_s=1,
        abort=Abort(),
    )
    assert isinstance(group, LoneGroup)
    group.leave()


def test_ranks_on_cuda_speak_over_nccl_and_offer_nothing():
    cuda = torch.device("cuda")
    offer_collective(None, cuda, rank=0, world_size=2)
    assert choose_collective(None, cuda, rank=0, world_size=2) == "nccl"


@pytest.mark.skipif(not has_library(), reason="there is no native library on this machine")
def test_ranks_of_one_host_share_memory():
    store = dist.HashStore()
    offers = [offer_collective(store, CPU, rank=rank, world_size=2) for rank in (0, 1)]
    with ThreadPoolExecutor(2) as pool:
        chosen, other = pool.map(
            lambda rank: choose_collective(store, CPU, rank=rank, world_size=2), (0, 1)
        )
        assert chosen == other == "shm"
        for offer in offers:
            offer.close()
        groups = list(pool.map(lambda rank: join(store, rank, collective=chosen), (0, 1)))
    assert all(isinstance(group, SharedGroup) for group in groups)
    for group in groups:
        group.leave()


def test_ranks_that_cannot_share_memory_all_choose_gloo_and_say_why():
    store = dist.HashStore()
    offer = make_offer(store, rank=0)
    store.set("offers/1", '{"memory": null, "reason": "no memory"}')
    with capture_logs() as logs:
        chosen = [choose_collective(store, CPU, rank=rank, world_size=2) for rank in (0, 1)]
    offer.close()
    assert chosen == ["gloo"] * 2
    assert [log["event"] for log in logs] == ["memory_not_shared"] * 2
    assert all(log["instead"] == "gloo" and "rank " in log["reason"] for log in logs)


def test_the_collective_tells_the_bytes_that_it_takes():
    assert collective_bytes("none", 1) == collective_bytes("gloo", 2) == 0
    assert collective_bytes("nccl", 2) > 0
    if has_library():
        assert collective_bytes("shm", 2) > 1 << 20


def test_an_abort_wakes_who_waits_for_a_fellow_over_gloo_long_before_the_time_out():
    aborts, met = [Abort(), Abort()], threading.Barrier(2, timeout=10)
    store = dist.HashStore()

    def live(rank):
        group = join(store, rank, timeout_s=100, abort=aborts[rank])
        if rank == 0:
            threading.Timer(0.2, aborts[0].set).start()
            with pytest.raises(GivenUp, match="in the middle of a step"):
                group.all_reduce(torch.zeros(1))
        met.wait()
        group.leave()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(live, (0, 1)))


def test_an_abort_wakes_who_forms_over_gloo_long_before_the_time_out():
    abort = Abort()
    threading.Timer(0.2, abort.set).start()
    with pytest.raises(GivenUp, match="while it met the others"):
        join(dist.HashStore(), 0, timeout_s=20, abort=abort)
