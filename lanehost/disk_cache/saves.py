"""Prefixes on their way to the disk, one after the other.

Laws: a save ends once, with its blocks released, whether it was written, dropped, recalled or lost
with its epoch; what was written of one that was recalled is never found, for its blocks may have
held something else by then: a rank that has not read all of them gives its file no name; the
manifest is written last; what does not fit the queue or the budget is dropped and counted, never
waited for.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from lanehost.disk_cache.interface import (
    DeleteFiles,
    DropFile,
    FileName,
    FileOutcome,
    SaveFile,
)
from lanehost.disk_cache.manifest import Manifest
from lanehost.disk_cache.shelf import ShelfOutcome
from lanehost.disk_cache.states import FileEvent
from lanehost.disk_cache.works import HARMLESS, Removal, Works, ignore

log = structlog.get_logger()

MAX_WAITING_SAVES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A prefix to write.

    Attributes:
        manifest: As it will be, but for what it takes, which the ranks will tell.
        block_ids: The blocks that hold it, held until `release` is called.
        num_bytes: What it will take, about, on all ranks.
        release: Called once, when nobody reads the blocks any more.
    """

    manifest: Manifest
    block_ids: tuple[int, ...]
    num_bytes: int
    release: Callable[[], None]

    @property
    def name(self) -> FileName:
        """How its files are named."""
        return self.manifest.header.name


class Saves:
    """Those that wait, and the one that is with the ranks; owned by the tier."""

    def __init__(self, works: Works) -> None:
        """Begin with none."""
        self._works = works
        self._waiting: deque[Save] = deque()
        self._saving: Save | None = None
        # Its blocks were given up: what the ranks write now is worth nothing.
        self._is_recalled = False
        # Written by the ranks, and in no index yet.
        self._listing: dict[FileName, Manifest] = {}
        # Of these, what becomes of those that are dismissed.
        self._dismissed: dict[FileName, Removal] = {}

    def __repr__(self) -> str:
        return f"<Saves {len(self._waiting)} wait, {self._saving and self._saving.name}>"

    @property
    def num_waiting(self) -> int:
        """Saves that wait for their turn."""
        return len(self._waiting)

    @property
    def _listing_bytes(self) -> int:
        return sum(manifest.num_bytes for manifest in self._listing.values())

    def takes(self, name: FileName) -> bool:
        """Say whether a save of this name would be taken now; if not, it counts as dropped."""
        if self._works.state(name) is not None:
            return False
        why = self._why_not()
        if why is not None:
            self._works.counters.dropped[why] += 1
        return why is None

    def add(self, save: Save) -> None:
        """Have a prefix written in its turn, or drop it and count why; nothing if it is there."""
        if not self.takes(save.name):
            save.release()
            return
        self._works.begin(save.name)
        self._waiting.append(save)

    def begin_next(self) -> None:
        """Begin with the next one, if none is with the ranks."""
        while self._waiting and self._saving is None:
            save = self._waiting.popleft()
            why = self._begin(save)
            if why is not None:
                self._works.fire(save.name, FileEvent.FAILED)
                self._drop(save, why)

    def recall(self) -> bool:
        """Release all, and have nothing come of any; says whether there was one."""
        recalled = self._held()
        for save in self._waiting:
            self._works.fire(save.name, FileEvent.FAILED)
        self._waiting.clear()
        if self._saving is not None and not self._is_recalled:
            self._is_recalled = True
            # Before any step that writes its blocks: ranks take their orders as they come.
            drop = DropFile(order_id=self._works.next_id(), name=self._saving.name)
            self._works.ask_ranks(drop, ignore)
        for save in recalled:
            self._drop(save, "recalled")
        return bool(recalled)

    def dismiss(self, is_meant: Callable[[Manifest], bool], how: Removal) -> int:
        """Recall all, and have those removed whose manifest is being written, if they are meant.

        Returns how many of the latter there are.
        """
        self.recall()
        meant = [name for name, manifest in self._listing.items() if is_meant(manifest)]
        self._dismissed.update(dict.fromkeys(meant, how))
        return len(meant)

    def end_epoch(self) -> None:
        """Release all: their blocks are gone."""
        lost = self._held()
        self._waiting.clear()
        self._saving, self._is_recalled = None, False
        for save in lost:
            save.release()

    def _held(self) -> list[Save]:
        """Return those whose blocks are not released."""
        saving = [] if self._saving is None or self._is_recalled else [self._saving]
        return [*saving, *self._waiting]

    def _why_not(self) -> str | None:
        if not self._works.has_ranks:
            return "no_ranks"
        if self._works.is_paused:
            return "paused"
        return "queue_full" if len(self._waiting) >= MAX_WAITING_SAVES else None

    def _drop(self, save: Save, why: str) -> None:
        self._works.counters.dropped[why] += 1
        save.release()

    def _begin(self, save: Save) -> str | None:
        """Begin one; says why not, if not."""
        if self._works.is_paused:
            return "paused"
        if not self._works.evict(save.num_bytes + self._listing_bytes):
            return "budget"
        work = SaveFile(
            order_id=self._works.next_id(),
            header=save.manifest.header,
            block_ids=save.block_ids,
        )
        if not self._works.ask_ranks(work, lambda outcome: self._take_saved(save, outcome)):
            return "no_ranks"
        self._works.fire(save.name, FileEvent.STARTED)
        self._saving = save
        return None

    def _take_saved(self, save: Save, outcome: FileOutcome) -> None:
        is_recalled, works = self._is_recalled, self._works
        self._saving, self._is_recalled = None, False
        if not is_recalled:
            save.release()
        if outcome.reason is not None and not (is_recalled and outcome.reason in HARMLESS):
            works.note_fault("save", outcome.reason, outcome.message)
        if outcome.reason is not None or is_recalled:
            works.fire(save.name, FileEvent.FAILED)
            works.delete(save.name)
            return
        works.fire(save.name, FileEvent.WRITTEN)
        works.counters.save_seconds += outcome.seconds
        manifest = replace(save.manifest, rank_bytes=outcome.num_bytes, used=works.index.uses)
        self._listing[save.name] = manifest
        works.write(manifest, lambda listed: self._take_listed(manifest, listed))

    def _take_listed(self, manifest: Manifest, outcome: ShelfOutcome) -> None:
        name, works = manifest.header.name, self._works
        del self._listing[name]
        how = self._dismissed.pop(name, None)
        if outcome.reason is not None:
            works.note_fault("list", outcome.reason, outcome.message)
            how = DeleteFiles
        if how is not None:
            works.fire(name, FileEvent.FAILED)
            works.unlist(name, how)
            return
        works.fire(name, FileEvent.LISTED)
        works.index.add(manifest)
        works.counters.saved += 1
        works.counters.saved_bytes += manifest.num_bytes
        log.debug("disk_cache_saved", key=name.key, num_tokens=manifest.header.num_tokens)
        # The ranks may have written more than was thought.
        works.evict(self._listing_bytes)
