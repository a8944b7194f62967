"""Works in flight, with ranks and shelf, and where each entry is.

Laws: every work that ranks or shelf take is answered once, or forgotten with its epoch, and an
answer goes to who asked; a manifest is removed before its files, which stay as long as it does;
what could not be removed is tried again later; files are removed many at once, by one work at a
time; who does not own the folder any more asks the ranks for nothing; an entry that is dismissed
is found no more from that moment, and goes as soon as nobody works with it.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import count

import structlog

from lanehost.disk_cache.counters import DiskCounters
from lanehost.disk_cache.index import DiskEntry, DiskIndex
from lanehost.disk_cache.interface import (
    DeleteFiles,
    FileName,
    FileOutcome,
    FileReason,
    FileWork,
    RankFiles,
    SetAside,
    SweepFiles,
)
from lanehost.disk_cache.manifest import Manifest
from lanehost.disk_cache.shelf import EmptyAside, RemoveManifest, Shelf, ShelfOutcome, WriteManifest
from lanehost.disk_cache.states import FileEvent, FileState, after
from lanehost.errors import RankGroupLost

log = structlog.get_logger()

# After a disk has failed a work, so long no save is begun, and no removal tried again; nor a fetch
# begun, if it was one that failed: a disk that is full can be read.
PAUSE_S = 10.0
# Names in one work that removes files: a message has a bound.
MAX_REMOVED = 256
# Of the works that `note_fault` names, the one for which somebody waits.
FETCH = "fetch"
# No reason of a rank's: it has said nothing.
LATE = "late"
# What says nothing against the disk, nor against the file.
HARMLESS = frozenset({FileReason.BUSY, FileReason.NO_ROOM, FileReason.UNCHECKED})

Removal = type[DeleteFiles] | type[SetAside]


class Works:
    """What `Saves` and `Fetches` share; owned by the tier."""

    def __init__(
        self,
        index: DiskIndex,
        shelf: Shelf,
        *,
        clock: Callable[[], float],
        counters: DiskCounters,
    ) -> None:
        """Begin without ranks; what the index has is saved."""
        self.index = index
        self.clock = clock
        self.counters = counters
        self._shelf = shelf
        self._files: RankFiles | None = None
        self._order_ids: Iterator[int] = count(1)
        self._states = {entry.name: FileState.SAVED for entry in index}
        self._on_files: dict[int, Callable[[FileOutcome], None]] = {}
        self._on_shelf: dict[int, Callable[[ShelfOutcome], None]] = {}
        # Whose files ranks are removing now, and whose are next: those of entries that are
        # leaving and have no manifest any more, and of some that never were entries.
        self._removing: dict[Removal, list[FileName]] = {}
        self._to_remove: dict[Removal, list[FileName]] = {DeleteFiles: [], SetAside: []}
        # Whose manifest could not be removed, and how their files go after it.
        self._stuck: dict[FileName, Removal] = {}
        self._remove_again_at_s = clock()
        self._is_disowned = False
        # What becomes of entries that are dismissed while somebody works with them.
        self._dismissed: dict[FileName, Removal] = {}
        self._paused_until_s = self._unreadable_until_s = clock()

    def __repr__(self) -> str:
        return f"<Works {len(self._on_files)} with ranks, {len(self._on_shelf)} with the shelf>"

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is in flight."""
        return not (self._on_files or self._on_shelf)

    @property
    def has_ranks(self) -> bool:
        """Whether there is an epoch whose ranks may be asked."""
        return self._files is not None and not self._is_disowned

    @property
    def is_paused(self) -> bool:
        """Whether a disk has failed a work just now."""
        return self.clock() < self._paused_until_s

    @property
    def is_unreadable(self) -> bool:
        """Whether a disk has failed a fetch just now."""
        return self.clock() < self._unreadable_until_s

    def state(self, name: FileName) -> FileState | None:
        """Return where an entry is; None: there is none."""
        return self._states.get(name)

    def begin_epoch(self, files: RankFiles) -> None:
        """Go on with these ranks, and have them sweep what is nobody's."""
        self._files = files
        self._sweep()

    def end_epoch(self) -> None:
        """Forget what is with ranks; the next ones sweep what they leave."""
        self._files = None
        self._on_files.clear()
        for name in list(self._states):
            self.fire(name, FileEvent.LOST)
        names = [name for some in (self._removing, self._to_remove) for name in _all(some)]
        self._removing.clear()
        for waiting in self._to_remove.values():
            waiting.clear()
        for name in names:
            self._end_removal(name)

    def take(self, outcome: FileOutcome | ShelfOutcome) -> None:
        """Give an outcome to who asked; one of an epoch that is over is of nobody."""
        if isinstance(outcome, FileOutcome):
            self._on_files.pop(outcome.order_id, ignore)(outcome)
        else:
            self._is_disowned |= outcome.is_disowned
            self._on_shelf.pop(outcome.order_id)(outcome)
        self._remove_again()

    def next_id(self) -> int:
        """Return the id of the next work."""
        return next(self._order_ids)

    def ask_ranks(self, work: FileWork, then: Callable[[FileOutcome], None]) -> bool:
        """Hand a work to all ranks; False when there are none."""
        if self._files is None or self._is_disowned:
            return False
        try:
            self._files.start(work)
        except RankGroupLost:  # the engine hears of it too, and ends the epoch here
            return False
        self._on_files[work.order_id] = then
        return True

    def write(self, manifest: Manifest, then: Callable[[ShelfOutcome], None]) -> None:
        """Have a manifest written."""
        work = WriteManifest(order_id=self.next_id(), manifest=manifest)
        self._on_shelf[work.order_id] = then
        self._shelf.start(work)

    def delete(self, name: FileName) -> None:
        """Have ranks remove what some of them may have of an entry that never was."""
        self._remove_files(name, DeleteFiles)

    def forget_rest(self) -> None:
        """Have removed what is of no entry: files of ranks, and what was moved aside here."""
        self._sweep()
        work = EmptyAside(order_id=self.next_id())
        self._on_shelf[work.order_id] = self._take_emptied
        self._shelf.start(work)

    def remove(self, entry: DiskEntry, event: FileEvent, how: Removal) -> None:
        """Take an entry out of look-ups, and off the disk, as was said when it was dismissed."""
        how = self._dismissed.pop(entry.name, how)
        if self.index.covers(entry.name):
            self.index.remove(entry)
        if how is SetAside:
            self.index.note_aside(entry.manifest.num_bytes)
        self.fire(entry.name, event)
        self.unlist(entry.name, how)

    def dismiss(self, entry: DiskEntry, how: Removal) -> bool:
        """Take an entry out of look-ups at once, and off the disk; says whether that began too.

        If not, somebody works with it, and `let_go` has it removed.
        """
        if self.state(entry.name) is FileState.SAVED:
            self.remove(entry, FileEvent.EVICTED, how)
            return True
        self.index.remove(entry)
        self._dismissed[entry.name] = how
        return False

    def is_dismissed(self, entry: DiskEntry) -> bool:
        """Say whether an entry goes as soon as nobody works with it."""
        return entry.name in self._dismissed

    def let_go(self, entry: DiskEntry) -> None:
        """Nobody works with an entry any more: remove it, if it was dismissed meanwhile."""
        if (how := self._dismissed.get(entry.name)) is not None:
            self.remove(entry, FileEvent.EVICTED, how)

    def unlist(self, name: FileName, how: Removal) -> None:
        """Remove a manifest and then the files of an entry that is leaving."""
        work = RemoveManifest(order_id=self.next_id(), name=name)
        self._on_shelf[work.order_id] = lambda outcome: self._take_unlisted(name, how, outcome)
        self._shelf.start(work)

    def evict(self, num_bytes: int) -> bool:
        """Make room for so many bytes; False when that cannot be."""
        victims = self.index.victims(num_bytes)
        for victim in victims or ():
            self.counters.evicted += 1
            self.remove(victim, FileEvent.EVICTED, DeleteFiles)
        return victims is not None

    def note_fault(self, what: str, reason: FileReason, message: str) -> None:
        """Count and log what a disk or a rank did not do."""
        self.counters.faults[reason.value] += 1
        if reason not in HARMLESS:
            self._paused_until_s = self.clock() + PAUSE_S
            if what == FETCH:
                self._unreadable_until_s = self._paused_until_s
        log.warning("disk_cache_fault", work=what, reason=reason.value, message=message)

    def note_late(self) -> None:
        """Count and log a fetch for which somebody has waited too long."""
        self.counters.faults[LATE] += 1
        log.warning("disk_cache_fault", work=FETCH, reason=LATE, message="it has not answered yet")

    def fire(self, name: FileName, event: FileEvent) -> None:
        """Move an entry along the table."""
        state = after(self._states[name], event)
        if state is None:
            del self._states[name]
        else:
            self._states[name] = state

    def begin(self, name: FileName) -> None:
        """Let an entry begin its life: it waits for its turn to be saved."""
        assert name not in self._states, f"{name} is there already"
        for waiting in self._to_remove.values():
            # What is left of an earlier life is written over.
            if name in waiting:
                waiting.remove(name)
        self._states[name] = FileState.WAITING

    def _sweep(self) -> None:
        # Those that are leaving still have their manifest.
        known = tuple(self._states)
        self.ask_ranks(SweepFiles(order_id=self.next_id(), known=known), ignore)

    def _take_emptied(self, outcome: ShelfOutcome) -> None:
        if outcome.reason is not None:
            self.note_fault("empty_aside", outcome.reason, outcome.message)
        else:
            self.index.forget_aside()

    def _take_unlisted(self, name: FileName, how: Removal, outcome: ShelfOutcome) -> None:
        if outcome.reason is None:
            self._remove_files(name, how)
            return
        self.note_fault("remove", outcome.reason, outcome.message)
        self._stuck[name] = how
        self._remove_again_at_s = self.clock() + PAUSE_S

    def _remove_files(self, name: FileName, how: Removal) -> None:
        if self.has_ranks:
            self._to_remove[how].append(name)
            self._remove_next(how)
        else:  # the next ones sweep
            self._end_removal(name)

    def _remove_next(self, how: Removal) -> None:
        """Have the ranks remove what waits, unless they are at it."""
        waiting = self._to_remove[how]
        if not waiting or how in self._removing or self.clock() < self._remove_again_at_s:
            return
        names = waiting[:MAX_REMOVED]
        del waiting[:MAX_REMOVED]
        work = how(order_id=self.next_id(), names=tuple(names))
        if self.ask_ranks(work, lambda outcome: self._take_removed(how, outcome)):
            self._removing[how] = names
        else:
            for name in names:
                self._end_removal(name)

    def _take_removed(self, how: Removal, outcome: FileOutcome) -> None:
        names = self._removing.pop(how)
        if outcome.reason is None:
            for name in names:
                self._end_removal(name)
            self._remove_next(how)
            return
        self.note_fault("remove", outcome.reason, outcome.message)
        self._remove_again_at_s = self.clock() + PAUSE_S
        # Of one that never was an entry, a new life may have begun.
        again = [name for name in names if self.state(name) in (None, FileState.LEAVING)]
        self._to_remove[how][:0] = again

    def _remove_again(self) -> None:
        """Try again what could not be removed, after a while; nobody has an entry's name then."""
        if self.clock() < self._remove_again_at_s or self._is_disowned:
            return
        stuck, self._stuck = self._stuck, {}
        for name, how in stuck.items():
            self.unlist(name, how)
        for how in self._to_remove:
            self._remove_next(how)

    def _end_removal(self, name: FileName) -> None:
        if self.state(name) is FileState.LEAVING:
            self.fire(name, FileEvent.REMOVED)


def _all(by_kind: Mapping[Removal, list[FileName]]) -> Iterator[FileName]:
    for names in by_kind.values():
        yield from names


def ignore(outcome: FileOutcome | ShelfOutcome) -> None:
    """Have nothing to do with an outcome."""
