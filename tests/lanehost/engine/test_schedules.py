"""The laws of the lane core in any schedule, over the fake ranks.

2,500 of them: `pytest -m soak tests/lanehost/engine/test_schedules.py`.
"""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lanehost.errors import Cancelled, DeadlinePassed, PoisonedRequest, StepFailed
from lanehost.job import Failed
from tests.support.fake_files import FakeDisk
from tests.support.fake_target import solo_continuation
from tests.support.jobs import ending, token_ids
from tests.support.schedules import KILLER, POISON, run_schedule

ALL_THAT_MAY = {
    "Cancelled",
    "DeadlinePassed",
    "Finished",
    "PoisonedRequest",
    "StepFailed",
    "alone",
    "cached",
    "carried",
    "draft",
    "draft error",
    "failed",
    "lost",
    "parked",
    "pass",
    "skipped",
    "yielded",
}


def check_schedule(seed, num_jobs, disk=None):
    ran = asyncio.run(run_schedule(seed, num_jobs, disk))
    for job, events in zip(ran.jobs, ran.replies, strict=True):
        last = ending(events)
        got = token_ids(events)
        target = solo_continuation(job.prompt_ids, job.draw, job.max_tokens, ran.vocab_size)
        assert got == target[: len(got)]
        if not isinstance(last, Failed):
            assert last.usage.completion_tokens == job.max_tokens
            assert len(got) == job.max_tokens
        elif isinstance(last.error, StepFailed):
            assert job.draw.seed == POISON
        elif isinstance(last.error, PoisonedRequest):
            assert job.draw.seed == KILLER
        else:
            assert isinstance(last.error, Cancelled | DeadlinePassed)
    return ran


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_in_any_schedule_n_in_n_out_and_every_reply_is_its_solo_run(seed, num_jobs):
    check_schedule(seed, num_jobs)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_with_a_disk_too_and_after_a_restart_over_what_is_on_it(seed, num_jobs):
    disk = FakeDisk()
    check_schedule(seed, num_jobs, disk)
    check_schedule(seed + 1, num_jobs, disk)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_in_2500_schedules_over_disks_too():
    """And between them the disks have done all that they may."""
    befell, disk = set(), FakeDisk()
    for seed in range(2500):
        disk = disk if seed % 10 else FakeDisk()
        befell |= check_schedule(seed, 1 + seed % 12, disk).befell
    assert befell == ALL_THAT_MAY | {"disk evicted", "disk fault", "disk hit", "disk miss"}


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_in_2500_schedules_too():
    """And between them they have had all that may befall a job."""
    befell = set()
    for seed in range(2500):
        befell |= check_schedule(seed, 1 + seed % 12).befell
    assert befell == ALL_THAT_MAY
