"""A rank's file as somebody sees it who has no rank: is it whole, and of its entry?

    8 bytes      length of the header, little-endian
    header       JSON of safetensors; its metadata names layout, key, tokens, rank and checksum
    data         the tensors

The checksum (xxh3-128) is over the header, with zeros in the checksum's place, and all data.
Whether the tensors are those of a model only a rank knows that has loaded it
(`ranks.disk.file_format`).

Law: whatever a file holds is a reason, never an exception, and never more memory than a header's
bound and a piece.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import xxhash

from lanehost.disk_cache.interface import FileHeader, FileReason
from lanehost.disk_cache.manifests import reason_of
from lanehost.disk_cache.regular_file import open_regular

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 1 << 20
_PIECE_BYTES = 1 << 20
_NAME = re.compile(r"(?P<key>[0-9a-f]{64})\.r(?P<rank>\d{1,5})of(?P<world>\d{1,5})\.safetensors")
_CHECKSUM = re.compile(rb'"checksum":"([0-9a-f]{32})"')
_TOKENS = frozenset({"num_tokens", "tokens_digest"})


def files_of(folder: Path, header: FileHeader) -> Iterator[Path]:
    """Yield the files of an entry that this host has, of all its ranks."""
    layout = folder / header.layout
    for path in sorted(layout.glob(f"{header.key}.r*of*.safetensors")):
        if _NAME.fullmatch(path.name) is not None:
            yield path


def check_rank_file(path: Path, header: FileHeader) -> FileReason | None:
    """Read all of a file and say what is wrong with it, None when nothing is."""
    named = _NAME.fullmatch(path.name)
    if named is None or named["key"] != header.key:
        return FileReason.FOREIGN
    expected = {
        "layout": header.layout,
        "key": header.key,
        "num_tokens": str(header.num_tokens),
        "tokens_digest": header.tokens_digest,
        "rank": named["rank"],
        "world_size": named["world"],
    }
    try:
        with os.fdopen(open_regular(path), "rb") as source:
            return _check(source, expected, os.fstat(source.fileno()).st_size)
    except OSError as err:
        return FileReason.MISSING if isinstance(err, FileNotFoundError) else reason_of(err)


def _check(source: IO[bytes], expected: dict[str, str], num_bytes: int) -> FileReason | None:
    length = int.from_bytes(source.read(_LENGTH_BYTES), "little")
    if num_bytes < _LENGTH_BYTES or length > num_bytes - _LENGTH_BYTES:
        return FileReason.TORN
    text = source.read(min(length, _MAX_HEADER_BYTES))
    wrong = _check_header(text, expected, num_bytes - _LENGTH_BYTES - length)
    found = _CHECKSUM.search(text)
    if wrong is not None or found is None:
        return wrong or FileReason.FOREIGN
    checksum = xxhash.xxh3_128(text[: found.start(1)] + b"0" * 32 + text[found.end(1) :])
    while piece := source.read(_PIECE_BYTES):
        checksum.update(piece)
    return None if checksum.hexdigest().encode() == found[1] else FileReason.CHECKSUM


def _check_header(text: bytes, expected: dict[str, str], data_bytes: int) -> FileReason | None:
    """Compare what a header says with what it should; one that was cut at the bound is none."""
    said = _parse(text)
    if said is None:
        return FileReason.FOREIGN
    wrong = [name for name, value in expected.items() if said["__metadata__"].get(name) != value]
    if wrong:
        return FileReason.TOKENS if _TOKENS.issuperset(wrong) else FileReason.FOREIGN
    said_bytes = _data_bytes(said)
    if data_bytes == said_bytes:
        return None
    return FileReason.TORN if data_bytes < said_bytes else FileReason.FOREIGN


def _parse(text: bytes) -> dict[str, Any] | None:  # Any: JSON, not looked at yet
    try:
        said = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    is_ours = isinstance(said, dict) and isinstance(said.get("__metadata__"), dict)
    return said if is_ours else None


def _data_bytes(said: dict[str, Any]) -> int:
    """Return how many bytes its tensors take, by its own word; -1 when it says none."""
    ends = [
        tensor["data_offsets"][1]
        for name, tensor in said.items()
        if name != "__metadata__"
        and isinstance(tensor, dict)
        and isinstance(tensor.get("data_offsets"), list)
        and len(tensor["data_offsets"]) == 2  # noqa: PLR2004 - begin and end
    ]
    if not all(isinstance(end, str) and end.isascii() and end.isdigit() for end in ends):
        return -1
    return max((int(end[:18]) for end in ends), default=-1)
