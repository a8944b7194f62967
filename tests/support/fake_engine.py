"""The whole engine over the fake ranks, for tests that run it on a real event loop."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from lanehost.admission.line import Line
from lanehost.engine.backend import Backend, Epochs
from lanehost.engine.desk import Desk
from lanehost.engine.disk_interface import NoDisk
from lanehost.engine.engine import Engine
from lanehost.engine.inbox import Drain, Inbox
from lanehost.engine.observer import EngineObserver
from lanehost.engine.stream import JobStream
from lanehost.job import Job, StopParams
from lanehost.journal.interface import NoJournal, StreamJournal
from lanehost.rank_group.facts import GroupFacts
from lanehost.settings import EngineSettings, LineSettings
from tests.support.disks import disk_over
from tests.support.fake_epochs import FakeEpochs
from tests.support.fake_ranks import FakeRanks, fake_facts
from tests.support.jobs import WordDetokenizer, arrive, make_ticket

if TYPE_CHECKING:
    from lanehost.engine.disk import EngineDisk


class Clock:
    """A clock that moves only when told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class EngineRig:
    """An engine, its line and inbox, and the ranks behind it."""

    def __init__(
        self,
        facts: GroupFacts | None = None,
        *,
        is_manual: bool = False,
        weights: Mapping[str, int] | None = None,
        observer: EngineObserver | None = None,
        wrap: Callable[[Backend], Backend] = lambda ranks: ranks,
        num_epochs: int = 1,
        **engine: Any,
    ) -> None:
        """Build it; `engine` are `journal` and `EngineSettings`, drafts off unless asked for.

        With a `disk`, a `FakeDisk`, there is a disk tier in `disk_mode`; see `tests.support.disks`.
        """
        self.ranks = FakeRanks(facts or fake_facts(), is_manual=is_manual)
        self.epochs = FakeEpochs(self.ranks, num_epochs=num_epochs, wrap=wrap)
        self.line = Line(LineSettings(), weights)
        self.inbox = Inbox()
        self.journal: StreamJournal = engine.pop("journal", NoJournal())
        self.clock = Clock()
        self.disk: EngineDisk | None = None
        if (disk := engine.pop("disk", None)) is not None:
            mode, budget = engine.pop("disk_mode", "full"), engine.pop("disk_budget", 10_000)
            self.disk = disk_over(disk, self, mode=mode, budget=budget)
        self.desk = Desk(
            line=self.line, inbox=self.inbox, journal=self.journal, disk=self.disk or NoDisk()
        )
        self.engine = Engine(
            self.as_epochs(wrap),
            desk=self.desk,
            clock=self.clock,
            settings=EngineSettings(**({"max_drafts": 0} | engine)),
            observer=observer,
        )

    def as_epochs(self, wrap: Callable[[Backend], Backend]) -> Epochs:
        """What the engine is built on."""
        return Epochs(first=wrap(self.ranks), later=self.epochs)

    def send(
        self,
        job: Job,
        *,
        stop: StopParams | None = None,
        detokenizer: WordDetokenizer | None = None,
        eos_token_ids: frozenset[int] = frozenset(),
    ) -> JobStream:
        ticket = make_ticket(
            job, self.inbox, stop=stop, detokenizer=detokenizer, eos_token_ids=eos_token_ids
        )
        return arrive(ticket, self.line, self.inbox)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the engine; drain it at the end and prove that nothing leaked."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.engine.run())
            yield
            self.inbox.put(Drain())
        self.check_all_free()

    def check_all_free(self) -> None:
        assert self.engine.num_open_jobs == 0
        blocks, cache = self.engine.blocks, self.engine.cache
        assert blocks.num_free + cache.num_kept_blocks == blocks.num_blocks
        assert cache.num_dead == 0
        held = Counter(block for entry in cache._entries for block in entry.block_ids)
        assert all(blocks.num_holders(n) == held[n] for n in range(blocks.num_blocks))
        assert self.engine.lanes.num_free == self.engine.lanes.num_lanes
        assert len(self.line) == 0
        assert self.engine.lanes.staging.open is None
        assert self.engine.images.num_wanted == 0
        images = self.epochs.last.images
        # One may be in hand: only what has not begun can be cancelled.
        assert images is None or len(images.waiting) <= 1


async def settle_loop(turns: int = 20) -> None:
    """Let every task run until nothing more can happen without a new event."""
    for _ in range(turns):
        await asyncio.sleep(0)
