"""The disk tier: saves prefixes beside the steps, and brings them back into blocks.

It never touches a step. A save reads blocks that somebody holds for it; a fetch has every rank
verify its file, and only then asks for blocks to copy it into. What is in them is an entry of
the memory tier from then on, and that tier's laws hold for it (ADR 25).

Laws: a save and a fetch end exactly once, whatever becomes of ranks and disks; an entry is found
only while all its files and its manifest are there, and what was flushed is not found, nor fetched,
unless it is saved anew; at most one save is with the ranks, and none begins while a fetch is; all
files together keep to the budget; a fault of a disk costs saves and hits, and nothing else.
"""

from collections.abc import Callable
from functools import partial

from lanehost.disk_cache.counters import DiskCounters
from lanehost.disk_cache.fetches import Fetch, Fetches
from lanehost.disk_cache.identity import scope_digest
from lanehost.disk_cache.index import DiskEntry, DiskIndex
from lanehost.disk_cache.interface import (
    DeleteFiles,
    FileName,
    FileOutcome,
    RankFiles,
    SetAside,
)
from lanehost.disk_cache.manifest import Manifest
from lanehost.disk_cache.saves import Save, Saves
from lanehost.disk_cache.shelf import Shelf, ShelfOutcome
from lanehost.disk_cache.works import Removal, Works

# Uses that are not on disk yet: a master that is killed forgets no more.
_MAX_UNWRITTEN_USES = 32


class DiskTier:
    """Owned by the engine's loop; outcomes of ranks and shelf come through `take`."""

    def __init__(self, index: DiskIndex, shelf: Shelf, *, clock: Callable[[], float]) -> None:
        """Begin without ranks.

        Args:
            index: All that is on disk.
            shelf: Writes manifests.
            clock: Seconds that only rise.
        """
        self.counters = DiskCounters()
        self._index = index
        self._works = Works(index, shelf, clock=clock, counters=self.counters)
        self._saves = Saves(self._works)
        self._fetches = Fetches(self._works, self.note_use)
        self._num_unwritten_uses = 0

    def __repr__(self) -> str:
        return f"<DiskTier {self._index!r} {self._saves!r} {self._fetches!r}>"

    @property
    def index(self) -> DiskIndex:
        """What is on disk, to look at."""
        return self._index

    @property
    def is_quiet(self) -> bool:
        """Whether nothing waits, and nothing is in flight."""
        return self._saves.num_waiting == 0 and self._works.is_quiet

    @property
    def num_waiting(self) -> int:
        """Saves that wait for their turn."""
        return self._saves.num_waiting

    @property
    def num_fetches(self) -> int:
        """Fetches in flight."""
        return self._fetches.num_open

    def begin_epoch(self, files: RankFiles) -> None:
        """Go on with the ranks of an epoch, which have nothing of ours in hand."""
        self._works.begin_epoch(files)
        self._works.evict(0)

    def end_epoch(self) -> None:
        """Forget what is with ranks that are gone; what is on disk stays."""
        self._works.end_epoch()
        self._saves.end_epoch()
        self._fetches.end_epoch()

    def find(self, scope: str, token_ids: tuple[int, ...]) -> DiskEntry | None:
        """Return the entry that covers most of a prompt, and leaves a token to run."""
        return self._index.find(scope, token_ids)

    def has(self, entry: DiskEntry) -> bool:
        """Say whether an entry is still there."""
        return self._index.covers(entry.name)

    def note_use(self, entry: DiskEntry) -> None:
        """Count a use of an entry's prefix, from whatever tier it came."""
        self._index.note_hit(entry)
        self._num_unwritten_uses += 1
        if self._num_unwritten_uses >= _MAX_UNWRITTEN_USES:
            self.write_uses()

    def write_uses(self) -> None:
        """Write how often entries were used, where that is not on disk yet."""
        self._num_unwritten_uses = 0
        for entry in self._index:
            if entry.is_dirty:
                entry.is_dirty = False
                self._works.write(entry.manifest, partial(self._take_uses, entry))

    def takes(self, name: FileName) -> bool:
        """Say whether a save of this name would be taken now; if not, it counts as dropped."""
        return self._saves.takes(name)

    def save(self, save: Save) -> None:
        """Write a prefix when its turn comes, or drop it and count why."""
        self._saves.add(save)
        self._begin_next()

    def recall_saves(self) -> bool:
        """Release the blocks of every save, and have nothing come of any; says if there was one."""
        return self._saves.recall()

    def fetch(self, fetch: Fetch) -> bool:
        """Begin to bring an entry back; False, and nothing comes of it, when that cannot be now."""
        return self._fetches.begin(fetch)

    def note_late(self) -> None:
        """Count and log a fetch for which somebody has waited too long."""
        self._works.note_late()

    def distrust(self, scope: str, token_ids: tuple[int, ...]) -> None:
        """Have all entries moved aside that these tokens begin with: it drew something else.

        Those on their way to the disk or back go, too.
        """
        owner = scope_digest(scope)

        def is_meant(manifest: Manifest) -> bool:
            covered = manifest.token_ids
            return manifest.owner == owner and covered == token_ids[: len(covered)]

        self._dismiss(is_meant, SetAside)

    def flush(self, scope: str | None) -> tuple[int, int]:
        """Remove the entries of a scope, of all when it is None, those on their way included.

        Returns how many go now, and how many go as soon as nobody works with them.
        """
        owner = None if scope is None else scope_digest(scope)
        gone = self._dismiss(lambda one: owner is None or one.owner == owner, DeleteFiles)
        if scope is None:
            self._works.forget_rest()
        return gone

    def prune(self, num_bytes: int) -> tuple[int, int]:
        """Remove entries of least worth until the files take no more than so many bytes.

        Returns how many entries go, and their bytes; entries in use stay.
        """
        chosen = self._index.beyond(num_bytes)
        for entry in chosen:
            self._works.dismiss(entry, DeleteFiles)
        return len(chosen), sum(entry.manifest.num_bytes for entry in chosen)

    def take(self, outcome: FileOutcome | ShelfOutcome) -> None:
        """Take what ranks or shelf did; of an epoch that is over it says nothing any more."""
        self._works.take(outcome)
        self._begin_next()

    def _dismiss(self, is_meant: Callable[[Manifest], bool], how: Removal) -> tuple[int, int]:
        num_later = self._saves.dismiss(is_meant, how)
        chosen = [entry for entry in self._index if is_meant(entry.manifest)]
        num_now = sum([self._works.dismiss(entry, how) for entry in chosen])
        return num_now, num_later + len(chosen) - num_now

    def _take_uses(self, entry: DiskEntry, outcome: ShelfOutcome) -> None:
        if outcome.reason is not None:
            entry.is_dirty = True
            self._works.note_fault("uses", outcome.reason, outcome.message)

    def _begin_next(self) -> None:
        if not self._fetches.num_open:
            self._saves.begin_next()
