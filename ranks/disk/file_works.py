"""Works on files, each done or not, and never an exception.

Laws: a file is verified as a whole before anything of it is copied, and again while it is: an
adopt that is done has copied what the save wrote, whoever has been at the file since. A work
that copies from or into the pool ends within one copy when its epoch does, and a save when its
name is dropped: its file has no name then, or was read from the pool before. A file that is torn,
changed, foreign or of another version is a miss, and so is whatever the system refuses.

Files are read, not mapped: the system tells of a file that cannot be read, or that somebody cut
while it was mapped, by a signal that ends the process; a read just fails. They are read twice,
the second time from the system's memory, so that none is held here between the two phases.
"""

import os
from collections.abc import Callable
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

# Files that were checked and neither adopted nor dropped: each is open.
MAX_CHECKED = 8
# Tensors are written together: the system takes half as long for so many bytes at once.
_WRITE_BYTES = 1 << 20


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
    file: int
    checksum: str


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
        # Of the file being written; a drop takes it away.
        self._saving: FileName | None = None
        self._has_folder = False

    def do(self, order: FileOrder, between: Callable[[], None]) -> Done:
        """Do a work; `between` is called now and then in a long one.

        It may raise PoolGone, which gives the work up.
        """
        try:
            with naming_faults():
                if not self._has_folder:
                    # By whoever may wait for a disk; and on hosts where no master has made it.
                    self._folder.make()
                    self._has_folder = True
                num_bytes = self._do(order.work, between)
        except FileMiss as miss:
            return Done(fault=miss.fault, message=str(miss))
        except PoolGone:
            return Done(fault=FileFault.GONE, message="the epoch is over")
        return Done(num_bytes=num_bytes)

    def close(self) -> None:
        """Close what was checked; nothing may be done afterwards."""
        for name in list(self._checked):
            self._drop(name)

    def _drop(self, name: FileName) -> None:
        checked = self._checked.pop(name, None)
        if checked is not None:
            os.close(checked.file)

    def _do(self, work: FileWork, between: Callable[[], None]) -> int:
        match work:
            case SaveFile(header=header, block_ids=block_ids):
                return self._save(header, block_ids, between)
            case CheckFile(header=header):
                return self._check(header, between)
            case AdoptFile(header=header, block_ids=block_ids):
                return self._adopt(header, block_ids, between)
            case DropFile(name=name):
                self._drop(name)
                self._saving = None if self._saving == name else self._saving
            case DeleteFiles(names=names):
                self._folder.delete(names)
            case SetAside(names=names):
                self._folder.set_aside(names)
            case SweepFiles(known=known):
                self._folder.sweep(known)
        return 0

    def _save(
        self, header: FileHeader, block_ids: tuple[int, ...], between: Callable[[], None]
    ) -> int:
        layout = self._lay_out(header)
        self._check_blocks(header, block_ids)
        self._saving = header.name

        def go_on() -> None:
            between()
            if self._saving is None:
                raise FileMiss(FileFault.BUSY, "it was given up")

        checksum = layout.new_checksum()
        buffer: Bytes = np.empty(max(_WRITE_BYTES, *layout.sizes), np.uint8)
        num_copied = 0
        with self._folder.writing(header.name) as file:
            # A head without a checksum: a file that is torn here can never be taken.
            self._write(file, layout.head())
            for number, size in enumerate(layout.sizes):
                go_on()
                with self._loan.parts() as parts:
                    parts.snapshot(number, block_ids, buffer[num_copied : num_copied + size])
                num_copied += size
                # Before the next one would not fit, and at the end.
                if num_copied + max(layout.sizes) > len(buffer) or number + 1 == len(layout.sizes):
                    checksum.update(buffer[:num_copied].data)
                    self._write(file, buffer[:num_copied].data)
                    num_copied = 0
            signed = layout.head(checksum.hexdigest())
            if self._folder.calls.pwrite(file, signed, 0) != len(signed):
                raise FileMiss(FileFault.IO, "its header was written in part")
            # What comes later finds a file that was read from the pool in time.
            go_on()
        return layout.num_bytes

    def _check(self, header: FileHeader, between: Callable[[], None]) -> int:
        self._drop(header.name)
        layout = self._lay_out(header)
        if len(self._checked) >= MAX_CHECKED:
            raise FileMiss(FileFault.BUSY, f"{MAX_CHECKED} files are checked already")
        file, num_bytes = self._folder.open(header.name)
        try:
            named = self._read_checksum(file, layout)
            layout.check_size(num_bytes)
            checked = _Checked(header=header, layout=layout, file=file, checksum=named)
            self._read_all(checked, between, lambda _number, _piece: None)
        except BaseException:
            os.close(file)
            raise
        self._checked[header.name] = checked
        return layout.num_bytes

    def _adopt(
        self, header: FileHeader, block_ids: tuple[int, ...], between: Callable[[], None]
    ) -> int:
        checked = self._checked.get(header.name)
        if checked is None or checked.header != header:
            raise FileMiss(FileFault.UNCHECKED, "it was not checked before")

        def copy(number: int, piece: Bytes) -> None:
            with self._loan.parts() as parts:
                parts.adopt(number, block_ids, piece)

        try:
            self._check_blocks(header, block_ids)
            self._read_all(checked, between, copy)
        finally:
            self._drop(header.name)
        with self._loan.parts() as parts:
            parts.finish()
        return checked.layout.num_bytes

    def _read_checksum(self, file: int, layout: FileLayout) -> str:
        length = length_in(self._read(file, LENGTH_BYTES, at=0))
        return layout.checksum_in(self._read(file, LENGTH_BYTES + length, at=0))

    def _read_all(
        self,
        checked: _Checked,
        between: Callable[[], None],
        use: Callable[[int, Bytes], None],
    ) -> None:
        """Read tensor after tensor.

        Raises:
            FileMiss: They are not what was written; some of them have been used.
        """
        layout = checked.layout
        checksum = layout.new_checksum()
        buffer: Bytes = np.empty(max(layout.sizes), np.uint8)
        at = layout.num_bytes - layout.data_bytes
        for number, size in enumerate(layout.sizes):
            between()
            piece = buffer[:size]
            if self._fill(checked.file, piece.data, at) < size:
                raise FileMiss(FileFault.TORN, "it became shorter while it was read")
            checksum.update(piece.data)
            use(number, piece)
            at += size
        if checksum.hexdigest() != checked.checksum:
            raise FileMiss(FileFault.CHECKSUM, "its bytes are not those that were written")

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

    def _fill(self, file: int, buffer: memoryview, at: int) -> int:
        done = 0
        while done < len(buffer):
            num_read = self._folder.calls.read_into(file, [buffer[done:]], at + done)
            if not num_read:
                break
            done += num_read
        return done
