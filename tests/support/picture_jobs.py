"""Jobs with pictures for a tiny Gemma 3, and engines over its ranks that run them in company."""

import asyncio
from dataclasses import replace

from lanehost.engine.backend import Epochs
from ranks.plan import Draw
from tests.support.images import image_job
from tests.support.jobs import make_job, read_all, token_ids
from tests.support.real_engine import RealEngine, Steps, engine_on_ranks
from tests.support.tiny_gemma3 import IMAGE_SIZE, IMAGE_TOKENS, TOKEN_ID

SOFT_ID = TOKEN_ID["<image_soft_token>"]
PLAIN = {"prompt_cache": False, "max_drafts": 0}
# A random model is sure of itself: at 1 it says the same token over and over.
_HOT = 3.0


def picture(*parts, **values):
    """A job of texts and images as this model takes them."""
    return image_job(*parts, num_tokens=IMAGE_TOKENS, side=IMAGE_SIZE, soft_id=SOFT_ID, **values)


def words(first, count):
    return tuple(20 + (first * 37 + at * 11) % 300 for at in range(count))


def texts():
    return [
        make_job(words(1, 9), max_tokens=40, draw=Draw(temperature=_HOT, seed=5)),
        make_job(words(2, 30), max_tokens=40),
    ]


def pictures():
    """Three with one image, and one with eight."""
    ones = [
        picture(
            words(number, 6), number, words(number + 3, 5),
            max_tokens=24, draw=Draw(temperature=_HOT * (number > 1), seed=number),
        )
        for number in (1, 2, 3)
    ]  # fmt: skip
    parts = [part for number in range(1, 9) for part in (words(number, 4), number)]
    eight = picture(*parts, words(9, 4), max_tokens=24, draw=Draw(temperature=_HOT, seed=8))
    return [*ones, eight]


def everybody():
    return [*texts(), *pictures()]


def again(job):
    """The same request once more."""
    return replace(job, job_id=f"{job.job_id}-again")


async def in_company(rig):
    """Two streams of text run, then all pictures arrive at once; returns all replies."""
    running = [asyncio.create_task(read_all(rig.send(again(job)))) for job in texts()]
    await rig.steps.until(lambda: any(plan.decodes for plan in rig.steps.run))
    arrived = await rig.run_all([again(job) for job in pictures()])
    return [token_ids(events) for events in (*[await one for one in running], *arrived)]


def slices(rig):
    return [plan for plan in rig.steps.run if plan.staged is not None]


async def solo_replies(checkpoint, jobs):
    """What each job gives by itself: one lane, one rank, no cache, whole passes."""
    group = {"num_lanes": 1}
    async with engine_on_ranks(checkpoint, group=group, **PLAIN, max_stall_ms=0) as rig:
        return [token_ids(await read_all(rig.send(again(job)))) for job in jobs]


class OverEpochs(RealEngine):
    """An engine over the epochs of real ranks."""

    def __init__(self, epochs, **engine):
        self._given = Epochs(first=epochs.group, later=epochs.supervisor)
        self.steps = Steps()
        super().__init__(epochs.group.facts, observer=self.steps, **engine)

    def as_epochs(self, wrap):
        return self._given
