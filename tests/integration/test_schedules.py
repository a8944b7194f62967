"""The laws of the lane core in any schedule, on real ranks: one and two of them.

2,000 schedules: `pytest -m soak tests/integration/test_schedules.py`.
"""

import asyncio
import random

import pytest

from lanehost.errors import Cancelled, DeadlinePassed, StepFailed
from lanehost.job import Failed, Priority
from ranks.plan import Draw
from tests.support.failing_rank import failing_rank_command
from tests.support.jobs import ending, make_job, token_ids
from tests.support.real_engine import engine_on_ranks, solo_replies
from tests.support.schedules import run_client
from tests.support.tiny_checkpoints import VOCAB_SIZE, write_repeating_checkpoint

pytestmark = pytest.mark.ranks
POISON = VOCAB_SIZE - 1
WEIGHTS = {"a": 1, "b": 3}
# Ten blocks for four lanes, of which one job may need nine: somebody must park.
GROUP = {"num_lanes": 4, "max_step_tokens": 40, "kv_tokens": 160}
ENGINE = {"max_drafts": 4, "max_fill_tokens": 16, "weights": WEIGHTS}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    write_repeating_checkpoint(folder, layers=0.1)
    return folder


def random_job(rng):
    beginning = tuple(range(rng.choice((0, 20, 40))))
    prompt = (*beginning, *(rng.randrange(POISON) for _ in range(rng.randint(1, 30))))
    if rng.random() < 0.05:
        prompt = (*prompt, POISON)
    return make_job(
        prompt,
        scope=rng.choice("ab"),
        max_tokens=rng.choice((0, rng.randint(1, 25), rng.randint(20, 60))),
        draw=Draw(temperature=rng.choice((0.0, 0.5)), seed=rng.randrange(99)),
        priority=rng.choice((Priority.FOREGROUND, Priority.FOREGROUND, Priority.BACKGROUND)),
        marks=(len(beginning),) if beginning else (),
    )


def random_jobs(rng):
    return [random_job(rng) for _ in range(rng.randint(1, 9))]


async def run_schedule(rig, rng):
    """A few jobs at random times; some of their clients leave. What each was told."""
    jobs = random_jobs(rng)
    replies = await asyncio.gather(*(run_client(rig, job, rng, within=40) for job in jobs))
    return list(zip(jobs, replies, strict=True))


async def run_schedules(checkpoint, *, tp, seeds):
    command = failing_rank_command(f"fail-token={POISON},fail-prompts-above=2")
    told = []
    async with engine_on_ranks(
        checkpoint, tp=tp, rank_command=command, group=GROUP, **ENGINE
    ) as rig:
        for seed in seeds:
            told += await run_schedule(rig, random.Random(seed))
    befell = {what for what, _ in rig.steps.notes}
    befell |= {refused.kind.value for refused in rig.steps.refused}
    befell |= {"pass" for plan in rig.steps.run if len(plan.chunks) > 1}
    befell |= {"draft" for plan in rig.steps.run if plan.drafts}
    return told, befell


def check(told, alone):
    """Each reply is what the job says by itself, as far as it came."""
    for (job, events), target in zip(told, alone, strict=True):
        last, got = ending(events), token_ids(events)
        assert got == target[: len(got)]
        if not isinstance(last, Failed):
            assert got == target
        elif isinstance(last.error, StepFailed):
            assert POISON in (*job.prompt_ids, *got)
        else:
            assert isinstance(last.error, Cancelled | DeadlinePassed)


SEEDS = range(20)


@pytest.fixture(scope="module")
def alone(checkpoint):
    """What each job of these schedules says by itself."""
    jobs = [job for seed in SEEDS for job in random_jobs(random.Random(seed))]
    return asyncio.run(solo_replies(checkpoint, jobs))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("tp", [1, 2])
async def test_in_any_schedule_n_in_n_out_and_every_reply_is_its_solo_run(checkpoint, alone, tp):
    told, befell = await run_schedules(checkpoint, tp=tp, seeds=SEEDS)
    check(told, alone)
    assert befell >= {"pass", "failed", "skipped", "parked", "ended"}


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("tp", [1, 2])
async def test_in_a_thousand_schedules_too(checkpoint, tp):
    """And between them they have had all that may befall a job."""
    seeds = range(1000 * tp, 1000 * tp + 1000)
    told, befell = await run_schedules(checkpoint, tp=tp, seeds=seeds)
    check(told, await solo_replies(checkpoint, [job for job, _ in told]))
    assert befell == {"pass", "failed", "skipped", "parked", "yielded", "ended", "draft"}
