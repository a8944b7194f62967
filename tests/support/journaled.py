"""A master over fake ranks with a journal, which can be killed; and clients that come back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lanehost.engine.inbox import Drain
from lanehost.engine.stream import JobStream
from lanehost.job import (
    Accepted,
    Failed,
    Finished,
    Request,
    Resumption,
    SamplingParams,
    StopParams,
    TokenPrompt,
    Tokens,
)
from lanehost.keys import KeyRing
from tests.support.door_rig import DoorRig
from tests.support.fake_engine import EngineRig
from tests.support.fake_ranks import fake_facts
from tests.support.journals import open_journal


def request(number: int = 0, *, max_tokens: int = 12, key: str | None = None, **stop: object):
    """A request of its own; even ones are greedy, odd ones seeded."""
    return Request(
        prompt=TokenPrompt(tuple(range(1, 4 + number))),
        max_tokens=max_tokens,
        sampling=SamplingParams(temperature=0.8 * (number % 2), seed=number),
        stop=StopParams(**stop),
        key=key,
    )


@dataclass(eq=False)
class Caller:
    """What one client has of a reply."""

    job_id: str = ""
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    last: Finished | Failed | None = None

    async def read(self, stream: JobStream) -> None:
        async with stream:
            async for event in stream:
                match event:
                    case Accepted(job_id=job_id):
                        self.job_id = job_id
                    case Tokens(token_ids=token_ids, text=text):
                        self.token_ids += token_ids
                        self.text += text
                    case Finished() | Failed():
                        self.last = event


class Life:
    """One master's life, on a folder."""

    def __init__(self, folder: Path, *, keys: KeyRing | None = None, **engine: object) -> None:
        self.journal = open_journal(folder)
        facts = fake_facts(num_lanes=3, num_blocks=64)
        weights = {} if keys is None else keys.weights
        self.rig = EngineRig(facts, journal=self.journal, weights=weights, **engine)
        self.front = DoorRig(engine=self.rig, journal=self.journal, keys=keys)
        self.door = self.front.door
        self.door.readmit(self.journal)

    async def submit(self, *args: object, **values: object) -> JobStream:
        return await self.door.submit(request(*args, **values))

    async def resume(self, job_id: str, next_index: int = 0, key: str | None = None) -> JobStream:
        return await self.door.resume_stream(
            Resumption(job_id=job_id, next_index=next_index, key=key)
        )


@asynccontextmanager
async def living(folder: Path, **values: object) -> AsyncIterator[Life]:
    """A master that drains at the end."""
    life = Life(folder, **values)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(life.rig.engine.run())
        yield life
        life.rig.inbox.put(Drain())
    life.rig.check_all_free()
    life.journal.close()


@asynccontextmanager
async def killed(folder: Path, **values: object) -> AsyncIterator[Life]:
    """A master that is gone at the end of the block, with nothing put in order."""
    life = Life(folder, **values)
    running = asyncio.create_task(life.rig.engine.run())
    yield life
    # Nothing that happens from here on comes into the folder.
    life.journal._segment = None
    running.cancel()
    await asyncio.wait({running})
