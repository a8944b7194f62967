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
from tests.support.fake_target import solo_reply
from tests.support.image_schedules import BAD_IMAGE
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


MAY_BEFALL_IMAGES = {
    "image cached",
    "image cancelled",
    "image encoded",
    "image evicted",
    "image failed",
    "pass dropped",
    "slice",
    "slice beside",
    "staged",
    "staged pass",
}


def check_schedule(seed, num_jobs, disk=None, *, has_images=False):
    ran = asyncio.run(run_schedule(seed, num_jobs, disk, has_images=has_images))
    for job, events in zip(ran.jobs, ran.replies, strict=True):
        last = ending(events)
        got = token_ids(events)
        target = solo_reply(job, ran.vocab_size)
        assert got == target[: len(got)]
        if not isinstance(last, Failed):
            assert last.usage.completion_tokens == job.max_tokens
            assert len(got) == job.max_tokens
        elif isinstance(last.error, StepFailed):
            assert job.draw.seed == POISON or any(one.image == BAD_IMAGE for one in job.images)
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


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_with_images_too_in_any_schedule(seed, num_jobs):
    check_schedule(seed, num_jobs, has_images=True)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_with_images_and_a_disk_too_and_after_a_restart(seed, num_jobs):
    disk = FakeDisk()
    check_schedule(seed, num_jobs, disk, has_images=True)
    check_schedule(seed + 1, num_jobs, disk, has_images=True)


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


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_in_2500_schedules_with_images_too():
    """And between them images have had all that may befall them."""
    befell = set()
    for seed in range(2500):
        befell |= check_schedule(seed, 1 + seed % 12, has_images=True).befell
    assert befell == ALL_THAT_MAY | MAY_BEFALL_IMAGES
