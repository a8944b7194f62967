"""Doubles of what the disk tier asks: files of ranks that hold tokens, and a shelf of a dict.

What a fake disk holds outlives ranks and masters: hand one `FakeDisk` to the next of them.
Outcomes come when `let_one_back` says so, in the order of the works, or by themselves.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from lanehost.disk_cache.interface import (
    AdoptFile,
    CheckFile,
    DeleteFiles,
    DropFile,
    FileHeader,
    FileName,
    FileOutcome,
    FileReason,
    FileWork,
    SaveFile,
    SetAside,
    SweepFiles,
)
from lanehost.disk_cache.manifest import Manifest
from lanehost.disk_cache.shelf import RemoveManifest, ShelfOutcome, ShelfWork, WriteManifest
from lanehost.errors import RankGroupLost

BYTES_PER_TOKEN = 10


@dataclass
class FakeDisk:
    """Files by name: what they say, and what their rows are. `manifests`: what the master wrote."""

    files: dict[FileName, tuple[FileHeader, tuple[int, ...]]] = field(default_factory=dict)
    manifests: dict[FileName, Manifest] = field(default_factory=dict)
    aside: list[FileName] = field(default_factory=list)


class FakeFiles:
    """Implements `lanehost.disk_cache.interface.RankFiles`.

    Args of the constructor: `read` and `write` do with a block's rows what ranks do; `fault` says
    of each work what becomes of it instead, None nothing. With `turns`, outcomes come by
    themselves, each after so many turns of the loop. Blocks that a fetch fills hold nothing
    sensible until it is done.
    """

    def __init__(
        self,
        disk: FakeDisk,
        *,
        read: Callable[[int], tuple[int, ...]] = lambda _: (),
        write: Callable[[int, tuple[int, ...]], None] = lambda *_: None,
        turns: Callable[[], int] | None = None,
    ) -> None:
        self.disk = disk
        self.works: list[FileWork] = []
        self.waiting: deque[FileWork] = deque()
        self.checked: dict[FileName, tuple[int, ...]] = {}
        self.fault: Callable[[FileWork], FileReason | None] = lambda _: None
        self.lost: RankGroupLost | None = None
        self._on_outcome: Callable[[FileOutcome], None] | None = None
        self._read, self._write = read, write
        self.turns = turns

    @property
    def busy_blocks(self) -> set[int]:
        """Blocks that works in flight fill; those of a save may be given up meanwhile."""
        works = [one for one in self.waiting if isinstance(one, AdoptFile)]
        return {block for work in works for block in work.block_ids}

    def tell(self, on_outcome: Callable[[FileOutcome], None]) -> None:
        self._on_outcome = on_outcome

    def start(self, work: FileWork) -> None:
        if self.lost is not None:
            raise self.lost
        assert all(work.order_id > before.order_id for before in self.works)
        self.works.append(work)
        self.waiting.append(work)
        if isinstance(work, AdoptFile):
            for block in work.block_ids:
                self._write(block, ())
        if self.turns is not None:
            self._wait(self.turns())

    def _wait(self, turns: int) -> None:
        if turns > 0:
            asyncio.get_running_loop().call_soon(self._wait, turns - 1)
        elif self.waiting:  # else they were lost
            asyncio.get_running_loop().call_soon(self._let_back)

    def _let_back(self) -> None:
        if self.waiting:
            self.let_one_back()

    def let_one_back(self) -> FileWork:
        """Do the oldest work, and tell what became of it."""
        work = self.waiting.popleft()
        reason = self.fault(work)
        num_bytes = (0,)
        if reason is None:
            reason, num_bytes = self._do(work)
        self._on_outcome(
            FileOutcome(order_id=work.order_id, reason=reason, num_bytes=num_bytes, seconds=0.5)
        )
        return work

    def let_all_back(self) -> None:
        while self.waiting:
            self.let_one_back()

    def lose(self) -> None:
        self.lost = RankGroupLost("gone", epoch=1, rank=0)
        self.waiting.clear()

    def _do(self, work: FileWork) -> tuple[FileReason | None, tuple[int, ...]]:
        match work:
            case SaveFile(header=header) if self._is_dropped(header.name):
                return FileReason.BUSY, (0,)
            case SaveFile(header=header):
                rows = tuple(row for block in work.block_ids for row in self._read(block))
                self.disk.files[header.name] = (header, rows)
                return None, (header.num_tokens * BYTES_PER_TOKEN,)
            case CheckFile(header=header):
                return self._check(header), (0,)
            case AdoptFile():
                return self._adopt(work), (0,)
            case _:
                self._tidy(work)
                return None, (0,)

    def _is_dropped(self, name: FileName) -> bool:
        return any(isinstance(one, DropFile) and one.name == name for one in self.waiting)

    def _check(self, header: FileHeader) -> FileReason | None:
        found = self.disk.files.get(header.name)
        if found is None:
            return FileReason.MISSING
        if found[0] != header:
            return FileReason.TOKENS
        self.checked[header.name] = found[1]
        return None

    def _adopt(self, work: AdoptFile) -> FileReason | None:
        rows = self.checked.pop(work.header.name, None)
        if rows is None:
            return FileReason.UNCHECKED
        size = work.header.num_tokens // len(work.block_ids)
        for at, block in enumerate(work.block_ids):
            self._write(block, rows[at * size : (at + 1) * size])
        return None

    def _tidy(self, work: DropFile | DeleteFiles | SetAside | SweepFiles) -> None:
        match work:
            case DropFile(name=name):
                self.checked.pop(name, None)
            case SweepFiles(known=known):
                for name in set(self.disk.files) - set(known):
                    del self.disk.files[name]
            case _:
                for name in work.names:
                    if self.disk.files.pop(name, None) and isinstance(work, SetAside):
                        self.disk.aside.append(name)


class FakeShelf:
    """Implements `lanehost.disk_cache.shelf.Shelf`."""

    def __init__(self, disk: FakeDisk) -> None:
        self.disk = disk
        self.waiting: deque[ShelfWork] = deque()
        self.fault: Callable[[ShelfWork], FileReason | None] = lambda _: None
        self.comes_back = False
        self.is_disowned = False
        self._on_outcome: Callable[[ShelfOutcome], None] | None = None

    def tell(self, on_outcome: Callable[[ShelfOutcome], None]) -> None:
        self._on_outcome = on_outcome

    def start(self, work: ShelfWork) -> None:
        self.waiting.append(work)
        if self.comes_back:
            asyncio.get_running_loop().call_soon(self.let_one_back)

    def let_one_back(self) -> ShelfWork:
        work = self.waiting.popleft()
        reason = FileReason.GONE if self.is_disowned else self.fault(work)
        if reason is None and isinstance(work, WriteManifest):
            self.disk.manifests[work.manifest.header.name] = work.manifest
        elif reason is None and isinstance(work, RemoveManifest):
            self.disk.manifests.pop(work.name, None)
        elif reason is None:
            self.disk.aside.clear()
        self._on_outcome(
            ShelfOutcome(order_id=work.order_id, reason=reason, is_disowned=self.is_disowned)
        )
        return work

    def let_all_back(self) -> None:
        while self.waiting:
            self.let_one_back()
