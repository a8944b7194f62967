"""Digests of files, so that ranks can tell whether they loaded the same weights."""

from hashlib import blake2b
from pathlib import Path

from ranks.errors import BadCheckpoint

_CHUNK_BYTES = 1 << 22


def digest_files(paths: list[Path]) -> str:
    """BLAKE2b over the names, lengths and bytes of all files, in hex.

    Raises:
        BadCheckpoint: A file cannot be read.
    """
    hasher = blake2b(digest_size=32)
    for path in paths:
        try:
            _add_file(hasher, path)
        except OSError as err:
            raise BadCheckpoint(f"{path}: cannot be read: {err}") from err
    return hasher.hexdigest()


def _add_file(hasher: blake2b, path: Path) -> None:
    with path.open("rb") as file:
        hasher.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        while chunk := file.read(_CHUNK_BYTES):
            hasher.update(chunk)
