"""Random lives of the whole engine: who arrives, leaves, is refused, gives way, fails.

`run_schedule` runs one over the fake ranks and returns what every client saw; the caller
compares each reply with the target's own continuation.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lanehost.disk_cache.interface import FileReason, FileWork
from lanehost.engine.inbox import Cancel, CancelCause, FetchLate
from lanehost.engine.observer import NoObserver
from lanehost.errors import RankGroupLost
from lanehost.job import DiskUse, Event, Failed, Finished, Job, Priority
from lanehost.rank_group.facts import GroupFacts
from ranks.plan import Draw, StepPlan, StepRefused, StepResult
from tests.support.fake_engine import EngineRig, settle_loop
from tests.support.fake_files import FakeDisk
from tests.support.fake_ranks import VOCAB_SIZE, LostWhen, fake_facts
from tests.support.image_schedules import (
    add_images,
    names_of_images,
    names_of_slice,
    random_image_room,
    random_staging,
    trouble_images,
)
from tests.support.images import image_facts
from tests.support.jobs import make_job

POISON = 666
KILLER = 999
# Of losses from outside in one schedule: one more, and they could condemn somebody.
MOST_KILLS = 2
_LONG = tuple(n % 2 for n in range(30))
WEIGHTS = {"a": 1, "b": 3}


class Befell(NoObserver):
    """Notes what befell jobs and steps, by its name."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def job_seated(self, job_id: str, lane_id: int, num_cached_tokens: int) -> None:
        self.names |= {"cached"} if num_cached_tokens else set()

    def job_parked(self, job_id: str) -> None:
        self.names.add("parked")

    def job_yielded(self, job_id: str) -> None:
        self.names.add("yielded")

    def lane_alone(self, lane_id: int) -> None:
        self.names.add("alone")

    def step_ended(self, plan: StepPlan, outcome: StepResult | StepRefused) -> None:
        if isinstance(outcome, StepRefused):
            self.names.add(outcome.kind.value)
            self.names |= {"draft error"} if plan.drafts else set()
            self.names |= {"pass dropped"} if plan.staged and plan.staged.first_layer else set()
        else:
            self.names |= {"pass"} if len(plan.chunks) > 1 else set()
            self.names |= names_of_slice(plan)
            self.names |= {"draft"} if plan.drafts else set()

    def group_lost(self, lost: RankGroupLost) -> None:
        self.names.add("lost")

    def job_carried(self, job_id: str) -> None:
        self.names.add("carried")

    def note_disk(self, rig: EngineRig) -> None:
        if rig.disk is not None:
            counters = rig.disk.tier.counters
            self.names |= {"disk hit"} if counters.hits else set()
            self.names |= {"disk miss"} if counters.misses else set()
            self.names |= {"disk evicted"} if counters.evicted else set()
            self.names |= {"disk fault"} if counters.faults else set()

    def job_ended(self, job_id: str, event: Finished | Failed, token_ids: Sequence[int]) -> None:
        self.names.add(type(event.error).__name__ if isinstance(event, Failed) else "Finished")


@dataclass(frozen=True)
class Ran:
    """What came of a schedule: the reply of each job, and all that befell them."""

    vocab_size: int
    jobs: list[Job]
    replies: list[list[Event]]
    befell: set[str]


async def run_schedule(
    seed: int, num_jobs: int, disk: FakeDisk | None = None, *, has_images: bool = False
) -> Ran:
    """Random arrivals, cancels, deadlines, pressure, yields and failing steps on one engine.

    With a `disk` there is a disk tier, over what an earlier schedule left there. With images
    some jobs have up to four each, and now and then one cannot be encoded.
    """
    rng = random.Random(seed)
    vocab_size = rng.choice((2, 5, VOCAB_SIZE))
    befell = Befell()
    rig = EngineRig(
        _random_facts(rng, vocab_size, has_images=has_images),
        prompt_cache=rng.random() < 0.8,
        max_drafts=rng.choice((0, 1, 3, 8)),
        max_fill_tokens=rng.randint(1, 8),
        weights=rng.choice((None, WEIGHTS)),
        observer=befell,
        num_epochs=1000,
        **(random_staging(rng) if has_images else {}),
        **_disk_or_none(rng, disk),
    )
    if has_images:
        trouble_images(rig.ranks, rng)
    if rig.disk is not None:
        rig.ranks.use_disk(disk, turns=_disk_turns(rig, rng))
        rig.ranks.files.fault = _bad_disk(rng)
    rig.ranks.room_prompts = rng.choice((None, None, 1, 2))
    rig.ranks.fails_drafts = rng.random() < 0.2
    rig.ranks.poisoned_seeds = {POISON}
    rig.ranks.fails = _hiccups(rng)
    # Either a request by which ranks are lost, or kills from outside: together they could
    # condemn somebody who did no harm.
    has_killer = rng.random() < 0.25
    rig.ranks.loses = _by_killer(rig, rng) if has_killer else _from_outside(rng)
    jobs = [_random_job(rng, has_killer=has_killer) for _ in range(num_jobs)]
    if has_images:
        jobs = [add_images(rng, job) for job in jobs]
    rig.epochs.turns = lambda: rng.choice((0, 0, rng.randrange(40)))

    async with rig.running():
        replies = await asyncio.gather(*(run_client(rig, job, rng, within=30) for job in jobs))
    befell.note_disk(rig)
    befell.names |= names_of_images(rig)
    return Ran(vocab_size=vocab_size, jobs=jobs, replies=replies, befell=befell.names)


def _random_facts(rng: random.Random, vocab_size: int, *, has_images: bool) -> GroupFacts:
    facts = {
        "num_lanes": rng.randint(1, 5),
        "num_blocks": 16,
        "max_step_tokens": rng.randint(5, 20),
        "vocab_size": vocab_size,
    }
    return image_facts(**facts, **random_image_room(rng)) if has_images else fake_facts(**facts)


async def run_client(rig: EngineRig, job: Job, rng: random.Random, *, within: int) -> list[Event]:
    """Send a job within so many turns of the loop, and leave or not; returns what it was told."""
    await settle_loop(rng.randrange(within))
    if rig.disk is not None and rng.random() < 0.1:
        rig.disk.flush(rng.choice((None, "a", "b")))
    stream = rig.send(job)
    leaves_after = rng.choice((None, None, rng.randrange(12)))
    events: list[Event] = []
    async with stream:
        async for event in stream:
            events.append(event)
            if len(events) == leaves_after:
                rig.inbox.put(Cancel(job.job_id, rng.choice(list(CancelCause))))
    return events


def _from_outside(rng: random.Random) -> Callable[[StepPlan], LostWhen | None]:
    """Lose the group by a step now and then, whatever is in it."""
    num_left = rng.choice((0, 1, MOST_KILLS))
    often = rng.choice((0.05, 0.3, 1.0))

    def loses(plan: StepPlan) -> LostWhen | None:
        nonlocal num_left
        if not num_left or rng.random() > often:
            return None
        num_left -= 1
        return rng.choice(list(LostWhen))

    return loses


def _by_killer(rig: EngineRig, rng: random.Random) -> Callable[[StepPlan], LostWhen | None]:
    """Lose the group by every step that a killer has rows in."""
    when = rng.choice(list(LostWhen))

    def loses(plan: StepPlan) -> LostWhen | None:
        return when if KILLER in rig.epochs.last.seeds_run(plan) else None

    return loses


def _seed(rng: random.Random, *, has_killer: bool) -> int:
    if rng.random() < 0.05:
        return POISON
    return KILLER if has_killer and rng.random() < 0.3 else rng.randrange(99)


def _random_job(rng: random.Random, *, has_killer: bool) -> Job:
    # Few different tokens: many prompts begin alike, and hit what others have kept. Some begin
    # alike for long: so much is worth files.
    prompt = tuple(rng.randrange(2) for _ in range(rng.randint(1, 30)))
    if rng.random() < 0.4:
        prompt = (*_LONG[: rng.randint(16, 27)], *prompt[:3])
    return make_job(
        prompt,
        scope=rng.choice("ab"),
        max_tokens=rng.choice((0, rng.randint(1, 20), rng.randint(1, 20))),
        draw=Draw(
            temperature=rng.choice((0.0, 0.7)),
            seed=_seed(rng, has_killer=has_killer),
        ),
        priority=rng.choice((Priority.FOREGROUND, Priority.FOREGROUND, Priority.BACKGROUND)),
        disk_use=rng.choice(
            (DiskUse.DEFAULT, DiskUse.DEFAULT, DiskUse.OFF, DiskUse.READ, DiskUse.FULL)
        ),
        marks=tuple(sorted(rng.sample(range(1, len(prompt) + 1), rng.randrange(len(prompt)) % 3))),
    )


def _disk_or_none(rng: random.Random, disk: FakeDisk | None) -> dict[str, Any]:
    if disk is None:
        return {}
    mode = rng.choice(("full", "full", "auto", "8"))
    return {"disk": disk, "disk_mode": mode, "disk_budget": rng.choice((400, 5000))}


def _disk_turns(rig: EngineRig, rng: random.Random) -> Callable[[], int]:
    """What each work takes; now and then the fetches that are open then are late."""
    often = rng.choice((0.0, 0.3))

    def turns() -> int:
        assert rig.disk is not None
        if rng.random() < often:
            for fetch_id in rig.disk._fetching:
                rig.inbox.put(FetchLate(fetch_id))
        return rng.randrange(8)

    return turns


def _bad_disk(rng: random.Random) -> Callable[[FileWork], FileReason | None]:
    """A disk that fails now and then, in any way."""
    often = rng.choice((0.0, 0.0, 0.3))

    def fault(_: FileWork) -> FileReason | None:
        return rng.choice(list(FileReason)) if rng.random() < often else None

    return fault


def _hiccups(rng: random.Random) -> Callable[[StepPlan], bool]:
    """Steps that fail now and then, whatever is in them: never one that a lane has for itself."""
    often = rng.choice((0.0, 0.0, 0.3))

    def fails(plan: StepPlan) -> bool:
        return len(plan.prompts) + len(plan.decodes) > 1 and rng.random() < often

    return fails
