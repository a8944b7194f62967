"""Works on files, each done or not, and never an exception.

Laws: what is adopted is what was checked, byte for byte, because it was read once and kept; a
work that copies from or into the pool ends within one copy when its epoch does. A file that is
torn, changed, foreign or of another version is a miss, and so is whatever the system refuses.

Files are read, not mapped: the system tells of a file that cannot be read, or that somebody cut
while it was mapped, by a signal that ends the process; a read just fails.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import structlog

from ranks.disk.file_format import LENGTH_BYTES, FileLayout, FileMiss, lay_out, length_in
from ranks.disk.folder import Folder, naming_faults
from ranks.disk.snapshot import Bytes, PoolGone, PoolLoan
from ranks.models.state import StateTensor
from ranks.wire.file_messages import (
    AdoptFile,
    CheckFile,
    DeleteFiles,
    DropFile,
    FileFault,
    FileHeader,
    FileName,
    FileOrder,
    FileWork,
    SaveFile,
    SetAside,
    SweepFiles,
)

log = structlog.get_logger()

# Files that were checked and neither adopted nor dropped: each is in memory.
MAX_CHECKED = 8
# Between two looks at whether the epoch is over.
_PIECE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What became of a work; `num_bytes` of its file."""

    fault: FileFault | None = None
    message: str = ""
    num_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    header: FileHeader
    layout: FileLayout
    data: Bytes


class FileWorks:
    """Of one rank in one epoch; one thread does them."""

    def __init__(
        self, folder: Folder, state: tuple[StateTensor, ...], loan: PoolLoan, *,
        rank: int, world_size: int,
    ) -> None:  # fmt: skip
        """Take the folder, the state of the loaded model and the loan of the epoch's pool."""
        self._folder = folder
        self._state = state
        self._loan = loan
        self._rank = rank
        self._world_size = world_size
        self._checked: dict[FileName, _Checked] = {}

    def do(self, order: FileOrder, between: Callable[[], None]) -> Done:
        """Do a work; `between` is called now and then in a long one.

        It may raise PoolGone, which gives the work up.
        """
        try:
            with naming_faults():
                num_bytes = self._do(order.work, between)
        except FileMiss as miss:
            return Done(fault=miss.fault, message=str(miss))
        except PoolGone:
            return Done(fault=FileFault.GONE, message="the epoch is over")
        return Done(num_bytes=num_bytes)

    def _do(self, work: FileWork, between: Callable[[], None]) -> int:
        match work:
            case SaveFile(header=header, block_ids=block_ids):
                return self._save(header, block_ids, between)
            case CheckFile(header=header):
                return self._check(header, between)
            case AdoptFile(header=header, block_ids=block_ids):
                return self._adopt(header, block_ids, between)
            case DropFile(name=name):
                self._checked.pop(name, None)
            case DeleteFiles(names=names):
                _each(self._folder.delete, names)
            case SetAside(names=names):
                _each(self._folder.set_aside, names)
            case SweepFiles(known=known):
                self._folder.sweep(known)
        return 0

    def _save(
        self, header: FileHeader, block_ids: tuple[int, ...], between: Callable[[], None]
    ) -> int:
        layout = self._lay_out(header)
        self._check_blocks(header, block_ids)
        checksum = layout.new_checksum()
        piece: Bytes = np.empty(max(layout.sizes), np.uint8)
        with self._folder.writing(header.name) as file:
            # A head without a checksum: a file that is torn here can never be taken.
            self._write(file, layout.head())
            for number, size in enumerate(layout.sizes):
                between()
                with self._loan.parts() as parts:
                    parts.snapshot(number, block_ids, piece[:size])
                checksum.update(piece[:size].data)
                self._write(file, piece[:size].data)
            signed = layout.head(checksum.hexdigest())
            if self._folder.calls.pwrite(file, signed, 0) != len(signed):
                raise FileMiss(FileFault.IO, "its header was written in part")
            between()
        return layout.num_bytes

    def _check(self, header: FileHeader, between: Callable[[], None]) -> int:
        layout = self._lay_out(header)
        if header.name not in self._checked and len(self._checked) >= MAX_CHECKED:
            raise FileMiss(FileFault.BUSY, f"{MAX_CHECKED} files are checked already")
        with self._folder.reading(header.name) as (file, num_bytes):
            length = length_in(self._read(file, LENGTH_BYTES, at=0))
            head = self._read(file, LENGTH_BYTES + length, at=0)
            named = layout.checksum_in(head)
            if num_bytes != layout.num_bytes:
                fault = FileFault.TORN if num_bytes < layout.num_bytes else FileFault.FOREIGN
                raise FileMiss(fault, f"it has {num_bytes} bytes of {layout.num_bytes}")
            data: Bytes = np.empty(layout.data_bytes, np.uint8)
            checksum = layout.new_checksum()
            for start in range(0, layout.data_bytes, _PIECE_BYTES):
                between()
                piece = data[start : start + _PIECE_BYTES]
                self._read_into(file, piece, at=len(head) + start)
                checksum.update(piece.data)
        if checksum.hexdigest() != named:
            raise FileMiss(FileFault.CHECKSUM, "its bytes are not those that were written")
        self._checked[header.name] = _Checked(header=header, layout=layout, data=data)
        return layout.num_bytes

    def _adopt(
        self, header: FileHeader, block_ids: tuple[int, ...], between: Callable[[], None]
    ) -> int:
        checked = self._checked.pop(header.name, None)
        if checked is None or checked.header != header:
            raise FileMiss(FileFault.UNCHECKED, "it was not checked before")
        self._check_blocks(header, block_ids)
        end = 0
        for number, size in enumerate(checked.layout.sizes):
            between()
            with self._loan.parts() as parts:
                parts.adopt(number, block_ids, checked.data[end : end + size])
            end += size
        with self._loan.parts() as parts:
            parts.finish()
        return checked.layout.num_bytes

    def _lay_out(self, header: FileHeader) -> FileLayout:
        return lay_out(
            header,
            self._state,
            block_size=self._loan.block_size,
            rank=self._rank,
            world_size=self._world_size,
        )

    def _check_blocks(self, header: FileHeader, block_ids: tuple[int, ...]) -> None:
        needed = header.num_tokens // self._loan.block_size
        if len(block_ids) != needed or len(set(block_ids)) != needed:
            raise FileMiss(
                FileFault.NO_ROOM,
                f"{len(set(block_ids))} blocks were named for {header.num_tokens} tokens",
            )
        if max(block_ids) >= self._loan.num_blocks:
            raise FileMiss(
                FileFault.NO_ROOM,
                f"block {max(block_ids)} was named, there are {self._loan.num_blocks}",
            )

    def _write(self, file: int, data: bytes | memoryview) -> None:
        left = memoryview(data)
        while left:
            left = left[self._folder.calls.write(file, left) :]

    def _read(self, file: int, size: int, *, at: int) -> bytes:
        """Read as many bytes as there are, up to `size`."""
        found = bytearray(size)
        num_read = self._fill(file, memoryview(found), at)
        return bytes(found[:num_read])

    def _read_into(self, file: int, piece: Bytes, *, at: int) -> None:
        if self._fill(file, piece.data, at) < len(piece):
            raise FileMiss(FileFault.TORN, "it became shorter while it was read")

    def _fill(self, file: int, buffer: memoryview, at: int) -> int:
        done = 0
        while done < len(buffer):
            num_read = self._folder.calls.read_into(file, [buffer[done:]], at + done)
            if not num_read:
                break
            done += num_read
        return done


def _each(act: Callable[[FileName], None], names: Iterable[FileName]) -> None:
    """Do it for all, whatever becomes of one; then raise the first miss."""
    first: FileMiss | None = None
    for name in names:
        try:
            act(name)
        except FileMiss as miss:
            first = first or miss
    if first is not None:
        raise first
