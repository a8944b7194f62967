"""The manifests of a folder as files: written whole, read whole, or moved aside.

    DIR/lock                       who owns the folder
    DIR/<layout>/<key>.manifest    the master's: an entry is there when this is
    DIR/<layout>/<key>.r<n>of<m>.safetensors    the ranks'
    DIR/aside/                     what was not what it should be, the newest few

Laws: a manifest is written to a temporary name, brought to the disk, renamed; so one that is there
is whole, or was broken by the disk. What cannot be read stops nobody: it is a reason. Links are
not followed, to read or to write, and nothing but a regular file is read.
"""

import errno
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from lanehost.disk_cache.interface import FileName, FileReason
from lanehost.disk_cache.manifest import (
    MAX_MANIFEST_BYTES,
    MAX_TOKENS,
    SUFFIX,
    Manifest,
    pack_manifest,
    read_manifest,
)
from lanehost.disk_cache.regular_file import read_regular

ASIDE = "aside"
# Manifests that are moved aside are for people; of these the newest are kept.
MAX_ASIDE = 32
_TEMPORARY = ".tmp"
_REASONS = {
    errno.ENOSPC: FileReason.NO_SPACE,
    errno.EDQUOT: FileReason.NO_SPACE,
    errno.EFBIG: FileReason.NO_SPACE,
    errno.EACCES: FileReason.DENIED,
    errno.EPERM: FileReason.DENIED,
    errno.EROFS: FileReason.DENIED,
    errno.ENOENT: FileReason.GONE,
    errno.ENOTDIR: FileReason.GONE,
    errno.ESTALE: FileReason.GONE,
    errno.EISDIR: FileReason.FOREIGN,
    errno.ELOOP: FileReason.FOREIGN,
    errno.ENXIO: FileReason.FOREIGN,
}


def reason_of(error: OSError) -> FileReason:
    """Return what an error of the system is to the disk tier."""
    return _REASONS.get(error.errno or 0, FileReason.IO)


def manifest_path(folder: Path, name: FileName) -> Path:
    """Return where the manifest of an entry is."""
    return folder / name.layout / f"{name.key}{SUFFIX}"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a manifest, in the place of an older one.

    Raises:
        OSError: it is not there, or the older one is.
    """
    content = pack_manifest(manifest)
    if len(manifest.token_ids) > MAX_TOKENS or len(content) > MAX_MANIFEST_BYTES:
        raise OSError(errno.EFBIG, "no manifest is that long")
    path = manifest_path(folder, manifest.header.name)
    with suppress(FileExistsError):
        path.parent.mkdir(mode=0o700)
    temporary = path.with_name(path.name + _TEMPORARY)
    try:
        # One that a killed server left would be in the way.
        temporary.unlink(missing_ok=True)
        with open(temporary, "xb", opener=_private) as target:
            target.write(content)
            target.flush()
            os.fsync(target.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def remove_manifest(folder: Path, name: FileName) -> None:
    """Remove a manifest, if it is there.

    Raises:
        OSError: it could not be.
    """
    path = manifest_path(folder, name)
    try:
        path.unlink()
    except FileNotFoundError:
        return
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names of a folder to the disk.

    Raises:
        OSError: the disk says no.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass(slots=True)
class Found:
    """What a folder holds: its manifests, files that are none, with why, and bytes moved aside."""

    manifests: list[Manifest] = field(default_factory=list[Manifest])
    broken: list[tuple[Path, FileReason]] = field(default_factory=list[tuple[Path, FileReason]])
    aside_bytes: int = 0

    @property
    def misses(self) -> Counter[str]:
        """How many are none, by why."""
        return Counter(reason.value for _, reason in self.broken)


def find_manifests(folder: Path) -> Found:
    """Read all manifests of a folder.

    Raises:
        OSError: the folder itself cannot be read.
    """
    aside = folder / ASIDE
    there = aside.iterdir() if aside.is_dir() else ()
    found = Found(aside_bytes=sum(path.lstat().st_size for path in there if path.is_file()))
    for path in sorted(_manifest_paths(folder)):
        manifest = _read(path)
        if isinstance(manifest, FileReason):
            found.broken.append((path, manifest))
        elif manifest_path(folder, manifest.header.name) != path:
            found.broken.append((path, FileReason.FOREIGN))
        else:
            found.manifests.append(manifest)
    return found


def sweep_manifests(folder: Path, found: Found) -> None:
    """Remove temporary manifests, and move aside those that are none; as far as that goes."""
    for layout in layout_folders(folder):
        for path in layout.glob(f"*{SUFFIX}{_TEMPORARY}"):
            with suppress(OSError):
                path.unlink()
    for path, _ in found.broken:
        with suppress(OSError):
            _move_aside(folder, path)


def _move_aside(folder: Path, path: Path) -> None:
    aside = folder / ASIDE
    aside.mkdir(mode=0o700, exist_ok=True)
    path.replace(aside / f"{path.parent.name[:16]}.{path.name}")
    there = sorted(aside.glob(f"*{SUFFIX}"), key=lambda one: one.lstat().st_mtime_ns)
    for old in there[:-MAX_ASIDE]:
        old.unlink()


def _read(path: Path) -> Manifest | FileReason:
    try:
        content = read_regular(path, MAX_MANIFEST_BYTES + 1)
    except OSError as err:
        return reason_of(err)
    return FileReason.FOREIGN if len(content) > MAX_MANIFEST_BYTES else read_manifest(content)


def empty_aside(folder: Path) -> None:
    """Remove all that was moved aside, by whomever on this host: prompts are in it, too.

    Raises:
        OSError: Something is left.
    """
    aside = folder / ASIDE
    for path in aside.iterdir() if aside.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def layout_folders(folder: Path) -> Iterator[Path]:
    """Yield the folders that have entries."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink() and path.name != ASIDE:
            yield path


def _manifest_paths(folder: Path) -> Iterator[Path]:
    for layout in layout_folders(folder):
        with suppress(OSError):
            yield from layout.glob(f"*{SUFFIX}")


def _private(path: str, flags: int) -> int:
    """Open a file that is this user's alone: it has prompts in it."""
    return os.open(path, flags, 0o600)
