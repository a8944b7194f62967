"""Digests of files, so that ranks can tell whether they loaded the same weights."""

from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

from ranks.errors import BadCheckpoint

_CHUNK_BYTES = 1 << 22


def digest_files(
    paths: list[Path], on_progress: Callable[[int], None] = lambda _done_bytes: None
) -> str:
    """BLAKE2b over the names, lengths and bytes of all files, in hex.

    `on_progress` hears how many bytes are done; what it raises ends the digest.

    Raises:
        BadCheckpoint: A file cannot be read.
    """
    hasher, done_bytes = blake2b(digest_size=32), 0
    for path in paths:
        try:
            for num_bytes in _add_file(hasher, path):
                done_bytes += num_bytes
                on_progress(done_bytes)
        except OSError as err:
            raise BadCheckpoint(f"{path}: cannot be read: {err}") from err
    return hasher.hexdigest()


def _add_file(hasher: blake2b, path: Path) -> Iterator[int]:
    """Digest chunk by chunk; yields the length of each."""
    with path.open("rb") as file:
        hasher.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        while chunk := file.read(_CHUNK_BYTES):
            hasher.update(chunk)
            yield len(chunk)
