"""Collectives in shared memory: values and ends, among threads and real processes."""

import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from ranks.abort import Abort
from ranks.errors import FellowLost, GivenUp, RankError
from ranks.shards import Place
from ranks.shared_group import form_shared_group, make_offer, memory_bytes, why_not_shared
from tests.support.processes import num_open_files, unhindered_s
from tests.support.shared_ranks import ask, beside_a_process, has_library, on_shared_ranks

pytestmark = pytest.mark.skipif(
    not has_library(), reason="there is no native library on this machine"
)
# Floats of one round: sizes around it and beyond it are cut.
ROUND = 65536
SHAPES = [(), (1,), (16, 576), (3, 5, 7), (0, 4), (ROUND,), (ROUND + 1,), (512, 576)]


@pytest.mark.parametrize("world_size", [2, 3])
def test_sums_are_added_in_the_order_of_ranks_whatever_their_shape(world_size):
    torch.manual_seed(0)
    parts = [torch.randn(world_size, *shape) * 1e3 for shape in SHAPES]
    found = on_shared_ranks(
        lambda group, rank: [group.all_reduce(part[rank].clone()) for part in parts],
        world_size=world_size,
    )
    for part, *sums in zip(parts, *found, strict=True):
        expected = part[0].clone()
        for share in part[1:]:
            expected += share
        assert all(torch.equal(one, expected) for one in sums)


@settings(max_examples=15, deadline=None)
@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from(["sum", "gather", "ids"]),
            st.integers(0, 5) | st.integers(60000, 140000),
        ),
        max_size=12,
    ),
    seed=st.integers(0, 2**32),
)
def test_any_run_of_collectives_gives_what_it_should_on_all_ranks(calls, seed):
    random = torch.Generator().manual_seed(seed)
    parts = [torch.randn(2, 1 + size // 500, 500, generator=random) for _, size in calls]
    ids = [torch.randint(-1, 1 << 40, (2, size), generator=random) for _, size in calls]

    def act(group, rank):
        found = []
        for (kind, _), part, mine in zip(calls, parts, ids, strict=True):
            if kind == "sum":
                found.append(group.all_reduce(part[rank].clone()))
            elif kind == "gather":
                found.append(group.gather_columns(part[rank]))
            else:
                found.append(group.broadcast_ids(mine[rank].clone()))
        return found

    for (kind, _), part, mine, one, other in zip(
        calls, parts, ids, *on_shared_ranks(act), strict=True
    ):
        if kind == "gather":
            assert torch.equal(one, torch.cat([part[0], part[1]], dim=-1))
            assert other is None
        else:
            expected = part[0] + part[1] if kind == "sum" else mine[0]
            assert torch.equal(one, expected)
            assert torch.equal(other, expected)


def test_thousands_of_rounds_in_a_row_mix_nothing_up():
    def act(group, rank):
        return all(
            torch.equal(
                group.all_reduce(torch.full((3,), float(n + rank))), torch.full((3,), 2.0 * n + 1)
            )
            for n in range(5000)
        )

    assert on_shared_ranks(act) == [True, True]


@pytest.mark.parametrize("widths", [(3, 3), (5, 2), (2, 5), (70000, 3), (3, 70000)])
@pytest.mark.parametrize("num_rows", [0, 1, 4])
def test_columns_are_joined_in_rank_order_on_the_leader_whatever_their_widths(widths, num_rows):
    parts = [torch.arange(num_rows * w).reshape(num_rows, w) + 100 * w for w in widths]
    joined, none = on_shared_ranks(lambda group, rank: group.gather_columns(parts[rank]))
    assert torch.equal(joined, torch.cat(parts, dim=-1))
    assert none is None


def test_what_does_not_lie_in_one_piece_is_taken_all_the_same():
    values = torch.arange(24.0).reshape(4, 6)

    def act(group, rank):
        return group.all_reduce(values.T), group.gather_columns(values[:, :2])

    (total, joined), (other, _) = on_shared_ranks(act)
    assert torch.equal(total, 2 * values.T)
    assert torch.equal(other, total)
    assert torch.equal(joined, torch.cat([values[:, :2]] * 2, dim=-1))


def test_another_width_than_before_is_refused_rather_than_awaited():
    def act(group, _rank):
        group.gather_columns(torch.zeros(1, 3))
        with pytest.raises(RankError, match="gathers 4 columns, it gathered 3 before"):
            group.gather_columns(torch.zeros(1, 4))

    on_shared_ranks(act)


def test_only_float32_is_added():
    def act(group, _rank):
        with pytest.raises(RankError, match=r"add float32, not torch\.float64"):
            group.all_reduce(torch.zeros(1, dtype=torch.float64))

    on_shared_ranks(act)


def test_nothing_stays_open_behind_a_group():
    on_shared_ranks(lambda group, rank: None)
    before = num_open_files()
    on_shared_ranks(lambda group, rank: None)
    assert num_open_files() == before


def test_a_rank_that_never_comes_ends_the_meeting_in_time():
    with pytest.raises(RankError, match=r"epoch1/pids/1 within 0\.2 s"):
        form_shared_group(
            dist.HashStore(), Place(epoch=1, rank=0, world_size=2), timeout_s=0.2, abort=Abort()
        )


def test_epochs_do_not_see_each_other():
    store = dist.HashStore()
    with pytest.raises(RankError, match="epoch1/pids/1"):
        form_shared_group(store, Place(epoch=1, rank=0, world_size=2), timeout_s=0.1, abort=Abort())
    with pytest.raises(RankError, match="epoch2/memory"):
        form_shared_group(store, Place(epoch=2, rank=1, world_size=2), timeout_s=0.1, abort=Abort())


def test_a_leader_whose_memory_is_gone_is_an_error_by_name():
    store = dist.HashStore()
    with pytest.raises(RankError):
        form_shared_group(store, Place(epoch=1, rank=0, world_size=2), timeout_s=0.1, abort=Abort())
    with pytest.raises(RankError, match="rank 1 cannot share memory with rank 0: /proc/"):
        form_shared_group(store, Place(epoch=1, rank=1, world_size=2), timeout_s=0.1, abort=Abort())


def test_who_forms_with_a_rank_that_has_ended_knows_it_by_name(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    store = dist.HashStore()
    store.set("epoch1/pids/1", str(ended.pid))
    with pytest.raises(FellowLost, match="rank 1 has ended") as error:
        form_shared_group(store, Place(epoch=1, rank=0, world_size=2), timeout_s=5, abort=Abort())
    assert error.value.suspect == 1


def offers(*said):
    store = dist.HashStore()
    for rank, (memory, reason) in enumerate(said):
        store.set(f"offers/{rank}", json.dumps({"memory": memory, "reason": reason}))
    return store


def conclude(store):
    with ThreadPoolExecutor(2) as pool:
        return list(
            pool.map(
                lambda rank: why_not_shared(store, rank=rank, world_size=2, timeout_s=5), (0, 1)
            )
        )


def test_ranks_that_open_each_other_s_memory_share():
    before, store = num_open_files(), dist.HashStore()
    made = [make_offer(store, rank=rank) for rank in (0, 1)]
    assert conclude(store) == [None, None]
    for offer in made:
        offer.close()
        offer.close()
    assert num_open_files() == before


def test_who_reads_another_secret_than_was_offered_is_on_another_host():
    """A number of a process means another one there, or none."""
    store = dist.HashStore()
    made = [make_offer(store, rank=rank) for rank in (0, 1)]
    told = json.loads(store.get("offers/1"))
    address = json.loads(told["memory"])
    changed = address | {"token": "00" * 16}
    store.set("offers/1", json.dumps(told | {"memory": json.dumps(changed)}))
    one, other = conclude(store)
    assert one == other
    assert one.startswith("rank 0 cannot open the memory of rank 1: ")
    assert one.endswith("it is another group's")
    for offer in made:
        offer.close()


def test_an_offer_that_is_gone_is_not_shared():
    store = dist.HashStore()
    made = [make_offer(store, rank=rank) for rank in (0, 1)]
    made[0].close()
    one, other = conclude(store)
    assert one == other
    assert one.startswith("rank 1 cannot open the memory of rank 0: ")
    made[1].close()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ([("a", None), (None, "no library")], "rank 1: no library"),
        ([(None, "no library"), ("a", None)], "rank 0: no library"),
    ],
)
def test_ranks_that_cannot_share_know_which_of_them_and_why(said, reason):
    assert reason in why_not_shared(offers(*said), rank=0, world_size=2, timeout_s=1)


def test_a_rank_that_makes_no_offer_is_not_awaited_for_ever():
    with pytest.raises(RankError, match=r"offers/1 within 0\.1 s"):
        why_not_shared(offers(("a", None)), rank=0, world_size=2, timeout_s=0.1)


def test_the_memory_is_of_a_size_that_only_the_number_of_ranks_decides():
    assert memory_bytes(2) < 2 << 20
    assert memory_bytes(64) < 64 << 20


def took_s(act, **raises):
    began_s = unhindered_s()
    with pytest.raises(FellowLost, **raises):
        act()
    return unhindered_s() - began_s


def test_ranks_that_do_not_do_the_same_are_told_so():
    def act(group, rank):
        with pytest.raises(FellowLost, match=r"rank [01] (does other work|has left)"):
            group.all_reduce(torch.zeros(3 + rank))

    on_shared_ranks(act)


def test_what_failed_once_fails_from_then_on():
    def act(group, rank):
        if rank == 1:
            return
        for _ in range(2):
            with pytest.raises(FellowLost, match="rank 1 has left"):
                group.all_reduce(torch.zeros(3))

    on_shared_ranks(act)


@pytest.mark.ranks
def test_two_processes_add_until_one_is_killed_in_mid_step_and_the_other_hears_at_once(tmp_path):
    with beside_a_process(tmp_path, timeout_s=30) as (group, fellow):
        for _ in range(100):
            ask(fellow)
            assert group.all_reduce(torch.ones(3)).tolist() == [2, 2, 2]
        os.kill(fellow.pid, signal.SIGKILL)
        waited = took_s(lambda: group.all_reduce(torch.ones(3)), match="rank 1 has ended")
        assert waited < 1.0


@pytest.mark.ranks
def test_a_process_that_is_killed_while_it_is_awaited_ends_the_wait(tmp_path):
    with beside_a_process(tmp_path, timeout_s=30) as (group, fellow):
        os.kill(fellow.pid, signal.SIGSTOP)
        Timer(0.3, fellow.kill).start()
        assert took_s(lambda: group.all_reduce(torch.ones(3)), match="rank 1 has ended") < 2.0


@pytest.mark.ranks
def test_a_process_that_is_stopped_in_mid_step_is_given_up_at_the_time_out(tmp_path):
    with beside_a_process(tmp_path, timeout_s=0.5) as (group, fellow):
        os.kill(fellow.pid, signal.SIGSTOP)
        ask(fellow)
        words = r"rank 1 has said nothing for 0\.5 s"
        began_s = time.monotonic()
        assert took_s(lambda: group.all_reduce(torch.ones(3)), match=words) < 5
        assert time.monotonic() - began_s > 0.4


@pytest.mark.ranks
def test_a_process_that_goes_on_in_time_is_waited_for(tmp_path):
    with beside_a_process(tmp_path, timeout_s=20) as (group, fellow):
        os.kill(fellow.pid, signal.SIGSTOP)
        ask(fellow)
        Timer(0.3, os.kill, (fellow.pid, signal.SIGCONT)).start()
        assert group.all_reduce(torch.ones(3)).tolist() == [2, 2, 2]


@pytest.mark.ranks
def test_nothing_has_a_name_while_a_group_lives_nor_when_it_was_killed(tmp_path):
    before = set(Path("/dev/shm").iterdir())
    with beside_a_process(tmp_path, timeout_s=5) as (_group, fellow):
        # Both have mapped it, and closed the descriptors through which it could be opened.
        for pid in (os.getpid(), fellow.pid):
            open_files = [
                str(link.readlink())
                for link in Path(f"/proc/{pid}/fd").iterdir()
                if link.is_symlink()
            ]
            assert not [name for name in open_files if "lanehost-collectives" in name]
            assert "lanehost-collectives" in Path(f"/proc/{pid}/maps").read_text()
        assert set(Path("/dev/shm").iterdir()) - before == set()
    assert set(Path("/dev/shm").iterdir()) - before == set()


@pytest.mark.ranks
def test_an_abort_wakes_who_waits_for_a_stopped_process_and_ends_all_that_follows(tmp_path):
    abort = Abort()
    with beside_a_process(tmp_path, timeout_s=100, abort=abort) as (group, fellow):
        os.kill(fellow.pid, signal.SIGSTOP)
        Timer(0.3, abort.set).start()
        for _ in range(2):
            with pytest.raises(GivenUp, match="told to leave"):
                group.all_reduce(torch.ones(3))
