"""The folder of a rank's files: whole files appear and disappear in it, and nothing else.

    <folder>/<layout>/<key>.r<rank>of<world size>.safetensors
    <folder>/<layout>/.<key>.r<rank>of<world size>.<pid>.tmp     being written
    <folder>/aside/<layout>.<key>.r<rank>of<world size>.safetensors

Laws: a file is complete before it has its name, and is there after a power cut once its save is
done: written under another name, synced, renamed, its folder synced. What the system says is a
`FileFault`, never an exception that anybody must know. Links are not followed, and nothing but
a regular file is read. Of files of several ranks in one folder, each rank sweeps its own: those
whose number leaves it as the remainder by the world size.
"""

import contextlib
import errno
import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ranks.disk.file_format import FileMiss
from ranks.wire.file_messages import FileFault, FileName

ASIDE = "aside"
# Files that were moved aside, of one rank; the oldest goes when there is one more. They are for
# people; the master counts as many in its budget.
MAX_ASIDE = 2
_FILE = re.compile(r"([0-9a-f]{64})\.r([0-9]{1,5})of[0-9]{1,5}\.safetensors")
_TEMPORARY = re.compile(r"\.[0-9a-f]{64}\.r([0-9]{1,5})of[0-9]{1,5}\.[0-9]+\.tmp")
_LAYOUT = re.compile(r"[0-9a-f]{64}")
_FAULTS = {
    errno.ENOSPC: FileFault.NO_SPACE,
    errno.EDQUOT: FileFault.NO_SPACE,
    errno.EFBIG: FileFault.NO_SPACE,
    errno.EACCES: FileFault.DENIED,
    errno.EPERM: FileFault.DENIED,
    errno.EROFS: FileFault.DENIED,
    errno.ENOENT: FileFault.GONE,
    errno.ENOTDIR: FileFault.GONE,
    errno.ESTALE: FileFault.GONE,
    errno.ELOOP: FileFault.FOREIGN,
    errno.ENXIO: FileFault.FOREIGN,
    errno.EISDIR: FileFault.FOREIGN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCalls:
    """What is asked of the system for the bytes of a file; each raises OSError."""

    write: Callable[[int, memoryview], int] = os.write
    pwrite: Callable[[int, bytes, int], int] = os.pwrite
    read_into: Callable[[int, list[memoryview], int], int] = os.preadv
    sync: Callable[[int], None] = os.fsync


class Folder:
    """One rank's part of a folder."""

    def __init__(
        self, path: Path, *, rank: int, world_size: int, calls: FileCalls | None = None
    ) -> None:
        """Name the folder; nothing is made or read yet."""
        self._path = path
        self._rank = rank
        self._world_size = world_size
        self._part = f"r{rank}of{world_size}"
        self.calls = calls or FileCalls()
        # A save may have stepped aside for a sweep.
        self._being_written: Path | None = None

    def __repr__(self) -> str:
        """Show where it is and whose part."""
        return f"<Folder {self._path} {self._part}>"

    def path_of(self, name: FileName) -> Path:
        """Where the file of an entry is."""
        return self._path / name.layout / f"{name.key}.{self._part}.safetensors"

    def make(self) -> None:
        """Make the folder, where the master of another host could not.

        Raises:
            FileMiss: It cannot be made.
        """
        with naming_faults():
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextmanager
    def writing(self, name: FileName) -> Iterator[int]:
        """Give a new file to write; it has its name, durably, once the body is through.

        Raises:
            FileMiss: The system could not do it; nothing is left then.
        """
        path = self.path_of(name)
        temporary = path.parent / f".{name.key}.{self._part}.{os.getpid()}.tmp"
        with naming_faults():
            if not path.parent.exists():
                path.parent.mkdir(mode=0o700, exist_ok=True)
                self._sync_folder(self._path)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(temporary, flags, 0o600)
            self._being_written = temporary
            try:
                try:
                    yield file
                    self.calls.sync(file)
                finally:
                    os.close(file)
                temporary.replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
                raise
            finally:
                self._being_written = None
            self._sync_folder(path.parent)

    def open(self, name: FileName) -> tuple[int, int]:
        """Open the file of an entry; returns the descriptor, which the caller closes, and its size.

        Raises:
            FileMiss: There is none, or it cannot be read.
        """
        with naming_faults():
            # Without O_NONBLOCK a pipe of that name would be waited for.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            try:
                file = os.open(self.path_of(name), flags)
            except (FileNotFoundError, NotADirectoryError) as err:
                raise FileMiss(FileFault.MISSING, "there is none") from err
            found = os.fstat(file)
            if stat.S_ISREG(found.st_mode):
                return file, found.st_size
            os.close(file)
            raise FileMiss(FileFault.FOREIGN, "it is no regular file")

    def delete(self, names: Collection[FileName]) -> None:
        """Remove this rank's files of entries, whatever world size they are of.

        Raises:
            FileMiss: The system could not do it for one of them; the others are gone.
        """
        self._each(names, lambda path: path.unlink(missing_ok=True))

    def set_aside(self, names: Collection[FileName]) -> None:
        """Move this rank's files of entries out of the way; the oldest there make room.

        Raises:
            FileMiss: The system could not do it for one of them; the others are moved.
        """
        self._each(names, self._move_aside)

    def sweep(self, known: Collection[FileName]) -> None:
        """Remove this rank's files that are of no known entry, or half and not being written.

        Raises:
            FileMiss: The system could not do it.
        """
        kept = {(name.layout, name.key) for name in known}
        with naming_faults():
            for folder in _list(self._path):
                if _LAYOUT.fullmatch(folder.name) is None:
                    continue
                for path in _list(folder):
                    is_own = self._is_own(_TEMPORARY.fullmatch(path.name), group=1)
                    if is_own and path != self._being_written:
                        path.unlink(missing_ok=True)
                for path in self._files_in(folder):
                    if (folder.name, path.name[:64]) not in kept:
                        path.unlink(missing_ok=True)

    def _each(self, names: Collection[FileName], act: Callable[[Path], None]) -> None:
        """Do it for all files of entries, whatever becomes of one, then raise the first miss.

        Each layout is listed once: a folder may have many files.
        """
        keys_of: dict[str, set[str]] = defaultdict(set)
        for name in names:
            keys_of[name.layout].add(name.key)
        misses: list[FileMiss] = []
        for layout, keys in keys_of.items():
            with _noting(misses), naming_faults():
                for path in self._files_in(self._path / layout):
                    if path.name[:64] in keys:
                        with _noting(misses), naming_faults():
                            act(path)
        if misses:
            raise misses[0]

    def _files_in(self, folder: Path) -> list[Path]:
        """List files of entries that are this rank's to see to."""
        return [path for path in _list(folder) if self._is_own(_FILE.fullmatch(path.name), group=2)]

    def _is_own(self, match: re.Match[str] | None, *, group: int) -> bool:
        return match is not None and int(match[group]) % self._world_size == self._rank

    def _move_aside(self, path: Path) -> None:
        aside = self._path / ASIDE
        aside.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            path.replace(aside / f"{path.parent.name}.{path.name}")
        there = [
            one for one in _list(aside) if self._is_own(_FILE.fullmatch(one.name[65:]), group=2)
        ]
        there.sort(key=_changed_at)
        for one in there[:-MAX_ASIDE]:
            one.unlink(missing_ok=True)

    def _sync_folder(self, folder: Path) -> None:
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.calls.sync(file)
        finally:
            os.close(file)


@contextmanager
def naming_faults() -> Iterator[None]:
    """Turn what the system says into a `FileMiss`."""
    try:
        yield
    except OSError as err:
        fault = _FAULTS.get(err.errno or 0, FileFault.IO)
        raise FileMiss(fault, err.strerror or type(err).__name__) from err
    except MemoryError as err:
        raise FileMiss(FileFault.NO_ROOM, "there is no memory for it") from err


@contextmanager
def _noting(misses: list[FileMiss]) -> Iterator[None]:
    try:
        yield
    except FileMiss as miss:
        misses.append(miss)


def _list(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _changed_at(path: Path) -> int:
    try:
        return path.lstat().st_ctime_ns
    except FileNotFoundError:
        return 0
