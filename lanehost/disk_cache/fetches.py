"""Entries on their way back into blocks, in two phases over all ranks.

    check    every rank opens its file and verifies all of it; nobody touches a block
    adopt    only when all have said yes: blocks are taken, and each rank copies into them

Laws: a fetch ends once; no block is taken for a file that is not what it should be, nor written
after its fetch has ended, but by an epoch that is over with its blocks; a file that is not what
it should be is a miss: moved aside, counted, never found again; of an entry that is dismissed
meanwhile (a flush) nothing is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from lanehost.disk_cache.index import DiskEntry
from lanehost.disk_cache.interface import (
    AdoptFile,
    CheckFile,
    DropFile,
    FileName,
    FileOutcome,
    SetAside,
)
from lanehost.disk_cache.states import FileEvent, FileState
from lanehost.disk_cache.works import FETCH, Works, ignore

log = structlog.get_logger()

MAX_FETCHES = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fetch:
    """An entry to bring into blocks.

    Attributes:
        entry: Which.
        take_blocks: Called once all ranks have verified it; returns the blocks, None for none.
        on_done: Called once at the end, with whether the blocks hold it. They are the caller's.
        gives_way: Nobody waits for it: one that comes meanwhile begins when it has ended.
    """

    entry: DiskEntry
    take_blocks: Callable[[], tuple[int, ...] | None]
    on_done: Callable[[bool], None]
    gives_way: bool = False


class Fetches:
    """Those in flight; owned by the tier."""

    def __init__(self, works: Works, note_use: Callable[[DiskEntry], None]) -> None:
        """Begin with none; `note_use` counts each hit."""
        self._works = works
        self._note_use = note_use
        # Each with when it began.
        self._open: dict[FileName, tuple[Fetch, float]] = {}
        # Those that begin when another of their entry has ended.
        self._behind: dict[FileName, Fetch] = {}

    def __repr__(self) -> str:
        return f"<Fetches {len(self._open)} open>"

    @property
    def num_open(self) -> int:
        """Fetches that have not ended."""
        return len(self._open)

    def begin(self, fetch: Fetch) -> bool:
        """Begin one; False, and nothing comes of it, when that cannot be now."""
        entry, works = fetch.entry, self._works
        ahead = self._open.get(entry.name)
        if ahead is not None and ahead[0].gives_way and entry.name not in self._behind:
            self._behind[entry.name] = fetch
            return True
        if works.is_unreadable or len(self._open) >= MAX_FETCHES:
            return False
        if works.state(entry.name) is not FileState.SAVED:
            return False
        work = CheckFile(order_id=works.next_id(), header=entry.manifest.header)
        if not works.ask_ranks(work, lambda outcome: self._take_checked(fetch, outcome)):
            return False
        works.fire(entry.name, FileEvent.ASKED)
        entry.num_users += 1
        self._open[entry.name] = (fetch, works.clock())
        return True

    def end_epoch(self) -> None:
        """End all: their blocks are gone."""
        for fetch, _ in list(self._open.values()):
            self._end(fetch, is_done=False)

    def _take_checked(self, fetch: Fetch, outcome: FileOutcome) -> None:
        works, entry = self._works, fetch.entry
        if outcome.reason is not None:
            self._drop_checked(entry)
            self._take_refusal(fetch, outcome)
            return
        block_ids = fetch.take_blocks()
        if block_ids is None:
            self._drop_checked(entry)
            self._keep(fetch)
            return
        header = entry.manifest.header
        work = AdoptFile(order_id=works.next_id(), header=header, block_ids=block_ids)
        if works.ask_ranks(work, lambda adopted: self._take_adopted(fetch, adopted)):
            works.fire(entry.name, FileEvent.CHECKED)
        else:
            self._keep(fetch)

    def _take_adopted(self, fetch: Fetch, outcome: FileOutcome) -> None:
        if outcome.reason is not None:
            self._take_refusal(fetch, outcome)
            return
        works, entry = self._works, fetch.entry
        if works.is_dismissed(entry):
            self._keep(fetch)
            return
        counters = works.counters
        counters.hits += 1
        counters.hit_tokens += entry.num_tokens
        counters.fetch_seconds += works.clock() - self._open[entry.name][1]
        works.fire(entry.name, FileEvent.ADOPTED)
        self._note_use(entry)
        self._end(fetch, is_done=True)

    def _take_refusal(self, fetch: Fetch, outcome: FileOutcome) -> None:
        """Move the entry aside, if it is the file that is at fault."""
        assert outcome.reason is not None
        works, entry, reason = self._works, fetch.entry, outcome.reason
        if not reason.is_of_the_file:
            works.note_fault(FETCH, reason, outcome.message)
            self._keep(fetch)
            return
        works.counters.misses[reason.value] += 1
        log.warning(
            "disk_cache_miss",
            key=entry.name.key,
            reason=reason.value,
            rank=outcome.rank,
            message=outcome.message,
        )
        works.remove(entry, FileEvent.MISSED, SetAside)
        self._end(fetch, is_done=False)

    def _keep(self, fetch: Fetch) -> None:
        self._works.fire(fetch.entry.name, FileEvent.KEPT)
        self._end(fetch, is_done=False)

    def _end(self, fetch: Fetch, *, is_done: bool) -> None:
        del self._open[fetch.entry.name]
        fetch.entry.num_users -= 1
        self._works.let_go(fetch.entry)
        fetch.on_done(is_done)
        behind = self._behind.pop(fetch.entry.name, None)
        if behind is not None and not self.begin(behind):
            behind.on_done(False)  # noqa: FBT003 - a callback's one argument

    def _drop_checked(self, entry: DiskEntry) -> None:
        """Have the ranks close a file that some of them may have checked."""
        works = self._works
        works.ask_ranks(DropFile(order_id=works.next_id(), name=entry.name), ignore)
