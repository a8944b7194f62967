"""Trails of the engine over the fake ranks, and ways to change them."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path

from lanehost.engine.inbox import Drain
from lanehost.errors import RankGroupLost
from lanehost.recorder.recorder import RecordingBackend, recording
from lanehost.recorder.records import Header, Record
from lanehost.recorder.trail import START, Torn, Trail, frame, read_file, trail_name
from lanehost.recorder.writer import WriterLimits
from lanehost.settings import RecordSettings
from ranks.plan import Draw
from tests.support.fake_engine import EngineRig
from tests.support.fake_ranks import fake_facts
from tests.support.jobs import make_job, read_all, token_ids

RUN_ID = "run-1"
KEY = bytes(range(32))
# So few that replies repeat themselves, and drafts are often right.
VOCAB = 7
FACTS = fake_facts(num_lanes=3, num_blocks=14, vocab_size=VOCAB)


class Ticks:
    """A clock of nanoseconds that moves by one at each look."""

    def __init__(self):
        self.now_ns = 0

    def __call__(self):
        self.now_ns += 1
        return self.now_ns


def header(**changes):
    usual = {
        "build": "1.2.3",
        "run_id": RUN_ID,
        "file_number": 1,
        "keeps_prompts": True,
        "model_path": "/models/m",
        "dtype": "auto",
        "weights": "auto",
        "device": "cpu",
        "facts": fake_facts(),
    }
    return Header(**(usual | changes))


def mixed_jobs(count=12):
    """Prompts that share beginnings, greedy and seeded draws, replies that repeat themselves."""
    shared = (1, 2, 3, 4, 1, 3, 2, 0, 4)
    return [
        make_job(
            (*shared[: 3 + number % 7], number % 3),
            max_tokens=1 + number * 5 % 17,
            draw=Draw(temperature=0.7 * (number % 2), seed=number),
            job_id=f"job-{number}",
        )
        for number in range(count)
    ]


def fail_steps(*, one_in=4, seed=1):
    """Let some steps fail, whatever is in them: a change for `run_recorded`."""
    rng = random.Random(seed)

    def change(rig):
        rig.ranks.fails = lambda plan: (
            bool(plan.chunks or plan.decodes) and rng.randrange(one_in) == 0
        )

    return change


async def leave_early(stream):
    async with stream:
        await anext(aiter(stream))
    return []


async def run_recorded(
    folder: Path,
    *,
    jobs=None,
    limits=None,
    facts=None,
    change=lambda rig: rig,
    **record,
):
    """Run jobs with a recorder, every fifth cancelled early; returns the replies."""
    facts = facts or FACTS
    keeps = {"keeps_prompts": True} | record
    about, settings = header(facts=facts, **keeps), RecordSettings(folder=folder, **keeps)
    async with recording(
        settings, about, redaction_key=KEY, clock_ns=Ticks(), limits=limits or WriterLimits()
    ) as recorder:
        rig = EngineRig(
            facts,
            observer=recorder,
            max_drafts=4,
            wrap=lambda ranks: RecordingBackend(ranks, recorder),
        )
        change(rig)
        return await run_jobs(rig, jobs or mixed_jobs())


async def run_jobs(rig, jobs):
    async def engine():
        with suppress(RankGroupLost):
            await rig.engine.run()

    reads = [
        leave_early(rig.send(job)) if number % 5 == 4 else read_all(rig.send(job))
        for number, job in enumerate(jobs)
    ]
    run = asyncio.create_task(engine())
    replies = await asyncio.gather(*reads)
    rig.inbox.put(Drain())
    await run
    return [token_ids(events) for events in replies]


def first_file(folder: Path) -> Path:
    return folder / trail_name(RUN_ID, 1)


def notes_of(folder: Path):
    return list(Trail(folder))


def write_file(path: Path, records: list[Record]) -> Path:
    """Write records as they are, with true checksums."""
    path.write_bytes(START + b"".join(frame(n, record) for n, record in enumerate(records)))
    return path


def rewrite(folder: Path, change) -> Path:
    """Apply `change` to every record of a trail of one file, and seal it anew."""
    path = first_file(folder)
    return write_file(path, [change(record) for record in read_file(path, Torn())])
