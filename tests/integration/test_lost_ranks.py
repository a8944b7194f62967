"""Real ranks of a tiny model that are killed and stopped: the next epoch draws the same."""

import asyncio
import os
import signal

import pytest

from lanehost.errors import RankGroupLost
from ranks.plan import StepResult
from tests.support.epochs import epochs_of
from tests.support.plan_writer import PlanWriter
from tests.support.processes import until
from tests.support.tiny_checkpoints import write_hf_checkpoint

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(180)]
HOW = [signal.SIGKILL, signal.SIGSTOP]
PHASES = ["rank_spawned", "rank_connected", "rank_loaded"]
REAL = {"dtype": "float32", "device": "cpu", "num_threads": 1}


def by_turns(first, second):
    """Every pair, each of `first` with one of `second` in turn; the others are a soak.

    Ranks of arithmetic are tried with every pair by default: test_recovery.py.
    """
    return [
        pytest.param(one, other, marks=() if number % len(second) == place else pytest.mark.soak)
        for number, one in enumerate(first)
        for place, other in enumerate(second)
    ]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    write_hf_checkpoint(folder, "llama")
    return folder


def real_epochs(checkpoint, **settings):
    return epochs_of(None, folder=checkpoint, **(REAL | settings))


async def drive(group):
    """A prompt and some tokens behind it, from an empty state."""
    writer = PlanWriter(block_size=16, epoch=group.facts.epoch)
    tokens = []
    for num in range(7):
        group.submit(writer.plan(decodes=(0,)) if num else writer.plan(prompts={0: [1, 2, 3]}))
        outcome = await group.next_outcome()
        assert isinstance(outcome, StepResult), outcome
        tokens.append(outcome.drawn)
    return tokens


async def steps_until_lost(group):
    """Keep two long steps in flight until the group is lost."""
    writer = PlanWriter(block_size=16, epoch=group.facts.epoch)
    group.submit(writer.plan(prompts={0: list(range(60))}))
    while True:
        group.submit(writer.plan(leaves=(0,), prompts={0: list(range(60))}))
        await group.next_outcome()


@pytest.mark.parametrize(("how", "victim"), by_turns(HOW, (0, 1)))
async def test_a_real_rank_that_is_lost_in_a_step_is_replaced_and_the_same_is_drawn(
    checkpoint, how, victim
):
    async with real_epochs(checkpoint) as epochs:
        tokens = await drive(epochs.group)
        stepping = asyncio.create_task(steps_until_lost((await again(epochs)).group))
        await asyncio.sleep(0.3)
        epochs.signal(victim, how)
        with pytest.raises(RankGroupLost) as lost:
            await asyncio.wait_for(stepping, 60)
        assert lost.value.epoch == 2
        assert await drive(await epochs.next_group()) == tokens
        assert epochs.pids(1 - victim)[0] == epochs.pids(1 - victim)[-1]


async def again(epochs):
    """End an epoch at whose end nobody is lost: the next one begins with step 1."""
    epochs.group.lose(RankGroupLost("the test begins anew", epoch=1, rank=None))
    await epochs.next_group()
    return epochs


@pytest.mark.parametrize("victim", [0, 1])
async def test_the_spare_takes_the_place_of_a_real_rank_that_is_lost(checkpoint, victim):
    async with real_epochs(checkpoint, keeps_spare=True) as epochs:
        tokens = await drive(epochs.group)
        for num_lives in (2, 3):
            await until(lambda num=num_lives - 1: len(epochs.spares) == num)
            spare = epochs.spares[-1]
            epochs.signal(victim, signal.SIGKILL)
            await epochs.lost()
            assert await drive(await epochs.next_group()) == tokens
            assert len(epochs.pids(victim)) == num_lives
            assert epochs.pids(victim)[-1] == spare
            assert len(epochs.pids(1 - victim)) == 1


async def test_a_spare_that_was_stopped_is_found_when_it_is_needed_and_replaced(checkpoint):
    async with real_epochs(checkpoint, keeps_spare=True) as epochs:
        tokens = await drive(epochs.group)
        await until(lambda: epochs.spares)
        os.kill(epochs.spares[0], signal.SIGSTOP)
        epochs.signal(1, signal.SIGKILL)
        await epochs.lost()
        assert await drive(await epochs.next_group()) == tokens
        assert epochs.pids(1)[1] == epochs.spares[0] != epochs.pids(1)[2]


@pytest.mark.parametrize("tp", [1, 2])
async def test_real_ranks_that_are_all_lost_twice_in_a_row_draw_the_same(checkpoint, tp):
    async with real_epochs(checkpoint, tp=tp) as epochs:
        tokens = await drive(epochs.group)
        for _ in range(2):
            for rank in range(tp):
                epochs.signal(rank, signal.SIGKILL)
            await epochs.lost()
            assert await drive(await epochs.next_group()) == tokens
        assert [len(epochs.pids(rank)) for rank in range(tp)] == [3] * tp


@pytest.mark.parametrize(("phase", "how"), by_turns(PHASES, HOW))
async def test_a_real_rank_that_is_lost_again_while_it_is_replaced_is_replaced_again(
    checkpoint, phase, how
):
    async with real_epochs(checkpoint) as epochs:
        tokens = await drive(epochs.group)
        epochs.signal(1, signal.SIGKILL)
        await until(lambda: epochs.count(phase, rank=1) == 2)
        epochs.signal(1, how)
        group = await epochs.next_group()
        while group.facts.epoch == 2 and len(epochs.pids(1)) == 2:
            # It was ready before the signal met it.
            await epochs.lost()
            group = await epochs.next_group()
        assert await drive(group) == tokens
        assert [len(epochs.pids(rank)) for rank in (0, 1)] == [1, 3]
