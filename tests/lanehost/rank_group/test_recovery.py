"""Ranks that are lost in any phase, one after the other and at once: the next epoch serves."""

import asyncio
import signal

import pytest

from lanehost.errors import RankGroupLost
from lanehost.rank_group.events import LossCause
from ranks.wire.messages import MAX_MESSAGE_BYTES
from tests.support.epochs import epochs_of
from tests.support.plan_writer import PlanWriter
from tests.support.processes import num_open_files, until

pytestmark = pytest.mark.ranks
HOW = [signal.SIGKILL, signal.SIGSTOP]


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("how", HOW)
async def test_an_idle_group_that_loses_a_rank_serves_again_and_the_other_keeps_its_process(
    tmp_path, how, victim
):
    async with epochs_of(folder=tmp_path) as epochs:
        await epochs.see_it_run()
        epochs.signal(victim, how)
        lost = await epochs.lost()
        assert (lost.rank, lost.epoch) == (victim, 1)
        group = await epochs.next_epoch()
        assert (group.facts.epoch, group.facts.num_blocks) == (2, epochs.group.facts.num_blocks)
        assert [len(epochs.pids(rank)) for rank in (victim, 1 - victim)] == [2, 1]
        told = [what for what, _ in epochs.watched.told]
        assert told == ["formed", "lost", "ended", "formed"]


async def test_one_rank_alone_is_replaced_as_well(tmp_path):
    async with epochs_of(folder=tmp_path, tp=1) as epochs:
        for epoch in (2, 3):
            epochs.signal(0, signal.SIGKILL)
            await epochs.lost()
            assert (await epochs.next_epoch()).facts.epoch == epoch
        assert len(epochs.pids(0)) == 3


@pytest.mark.parametrize("how", HOW)
async def test_both_ranks_at_once_are_one_loss(tmp_path, how):
    async with epochs_of(folder=tmp_path) as epochs:
        for rank in (0, 1):
            epochs.signal(rank, how)
        await epochs.next_epoch()
        assert [len(epochs.pids(rank)) for rank in (0, 1)] == [2, 2]
        assert epochs.count("epoch_ended") == 1


@pytest.mark.parametrize("how", HOW)
async def test_a_rank_that_is_lost_in_a_step_takes_nothing_of_the_next_epoch_with_it(tmp_path, how):
    # Rank 0 hangs in its step, as one does that waits for the other in a collective: it
    # answers no Leave, and is replaced too.
    async with epochs_of("hang-in-step-on-0-in-life-1", folder=tmp_path) as epochs:
        epochs.group.submit(PlanWriter(block_size=16).plan(prompts={0: [1]}))
        epochs.signal(1, how)
        with pytest.raises(RankGroupLost):
            await asyncio.wait_for(epochs.group.next_outcome(), 30)
        await epochs.next_epoch()
        assert ("lost", LossCause.STUCK) in epochs.watched.told
        assert [len(epochs.pids(rank)) for rank in (0, 1)] == [2, 2]


async def test_a_step_that_stands_still_ends_the_epoch_and_who_answers_leave_is_kept(tmp_path):
    behaviour = "hang-in-step-on-1-in-life-1"
    async with epochs_of(behaviour, folder=tmp_path, stall_timeout_s=1.0) as epochs:
        epochs.group.submit(PlanWriter(block_size=16).plan(prompts={0: [1]}))
        lost = await epochs.lost()
        assert str(lost) == "rank 1 has not moved in step 1 for 1 s"
        await epochs.next_epoch()
        assert [len(epochs.pids(rank)) for rank in (0, 1)] == [1, 2]


async def test_a_rank_that_holds_its_interpreter_in_a_step_is_replaced(tmp_path):
    behaviour = "seize-in-step-on-1-in-life-1"
    async with epochs_of(behaviour, folder=tmp_path, heartbeat_timeout_s=4.0) as epochs:
        epochs.group.submit(PlanWriter(block_size=16).plan(prompts={0: [1]}))
        assert str(await epochs.lost()) == "rank 1 has said nothing for 4 s"
        await epochs.next_epoch()
        assert len(epochs.pids(1)) >= 2


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("phase", ["spawn", "load", "form"])
async def test_a_rank_that_is_lost_again_while_it_is_replaced_is_replaced_again(
    tmp_path, phase, how
):
    behaviour = f"hang-in-{phase}-on-1-in-life-2"
    async with epochs_of(behaviour, folder=tmp_path) as epochs:
        epochs.signal(1, signal.SIGKILL)
        await epochs.lost()
        await until(lambda: len(epochs.pids(1)) == 2)
        if phase != "spawn":
            await until(lambda: epochs.num_lives(1) == 2)
        if phase == "form":
            await until(lambda: epochs.count("rank_loaded", rank=1) == 2)
        epochs.signal(1, how)
        group = await epochs.next_epoch()
        assert [len(epochs.pids(rank)) for rank in (0, 1)] == [1, 3]
        assert group.facts.epoch == (3 if phase == "form" else 2)


async def test_a_survivor_that_is_lost_during_the_recovery_is_replaced_too(tmp_path):
    async with epochs_of("hang-in-load-on-1-in-life-2", folder=tmp_path) as epochs:
        epochs.signal(1, signal.SIGKILL)
        await until(lambda: epochs.num_lives(1) == 2)
        epochs.signal(0, signal.SIGKILL)
        await until(lambda: len(epochs.pids(0)) == 2)
        epochs.signal(1, signal.SIGKILL)
        await epochs.next_epoch()
        assert [len(epochs.pids(rank)) for rank in (0, 1)] == [2, 3]


async def test_a_replacement_that_loads_something_else_never_serves(tmp_path):
    async with epochs_of("other-weights-in-life-2", folder=tmp_path) as epochs:
        epochs.signal(1, signal.SIGKILL)
        await epochs.next_epoch()
        assert ("lost", LossCause.DISAGREES) in epochs.watched.told
        assert len(epochs.pids(1)) == 3


async def test_ranks_that_are_out_of_step_begin_anew_and_nobody_is_replaced(tmp_path):
    async with epochs_of("drift-on-1", folder=tmp_path) as epochs:
        epochs.group.submit(PlanWriter(block_size=16).plan(prompts={0: [1]}))
        with pytest.raises(RankGroupLost, match="out of step: step 1 gave digest"):
            await epochs.group.next_outcome()
        group = await asyncio.wait_for(epochs.supervisor.next_backend(), 30)
        assert group.facts.epoch == 2
        assert [len(epochs.pids(rank)) for rank in (0, 1)] == [1, 1]


async def test_a_rank_that_reads_nothing_any_more_is_replaced(tmp_path):
    async with epochs_of(folder=tmp_path) as epochs:
        link = epochs.group._links[1]
        while not link._end:
            link.send(b"\x00" * (MAX_MESSAGE_BYTES >> 10))
        assert "rank 1 takes nothing" in str(await epochs.lost())
        await epochs.next_epoch()
        assert [len(epochs.pids(rank)) for rank in (0, 1)] == [1, 2]


async def test_at_the_limit_the_ranks_are_given_up_for_good(tmp_path):
    behaviour = "exit-in-load-on-0-in-life-2,exit-in-load-on-0-in-life-3"
    async with epochs_of(behaviour, folder=tmp_path, tp=1, max_restarts=2) as epochs:
        epochs.signal(0, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(RankGroupLost, match="the limit is 2 restarts"):
                await asyncio.wait_for(epochs.supervisor.next_backend(), 60)
        assert len(epochs.pids(0)) == 3
        assert epochs.count("rank_group_lost") == 1


@pytest.mark.parametrize("phase", ["spawn", "load", "form", "back off"])
async def test_stopped_in_any_phase_of_a_recovery_nothing_is_left(tmp_path, phase):
    act = "exit" if phase == "back off" else "hang"
    where = {"spawn": "load", "back off": "load"}.get(phase, phase)
    before = num_open_files()
    # That no process is left is seen at the end of the block.
    async with epochs_of(f"{act}-in-{where}-on-1-in-life-2", folder=tmp_path) as epochs:
        epochs.signal(1, signal.SIGKILL)
        await epochs.lost()
        if phase != "spawn":
            await until(lambda: epochs.num_lives(1) == 2)
        if phase == "form":
            await until(lambda: epochs.count("rank_loaded", rank=1) == 2)
        if phase == "back off":
            await until(lambda: epochs.count("rank_exited", rank=1) == 2)
    with pytest.raises(RankGroupLost, match="was stopped"):
        await epochs.supervisor.next_backend()
    assert num_open_files() <= before + 4


async def test_epochs_leave_no_descriptor_behind(tmp_path):
    async with epochs_of(folder=tmp_path, tp=1) as epochs:
        await epochs.see_it_run()
        before = num_open_files()
        for _ in range(3):
            epochs.signal(0, signal.SIGKILL)
            await epochs.lost()
            await epochs.next_epoch()
        # Connections that have ended are closed a moment later, by threads of gRPC.
        await until(lambda: num_open_files() <= before)


async def test_a_group_that_was_lost_before_anybody_asked_is_never_given(tmp_path):
    async with epochs_of(folder=tmp_path, tp=1) as epochs:
        for is_formed in (
            lambda: epochs.count("epoch_formed", epoch=2),
            lambda: epochs.count("epoch_formed", epoch=3),
        ):
            epochs.signal(0, signal.SIGKILL)
            await until(is_formed)
        assert (await epochs.supervisor.next_backend()).facts.epoch == 3
