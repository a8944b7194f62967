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
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import xxhash

from lanehost.disk_cache.interface import FileHeader, FileName, FileReason
from lanehost.disk_cache.manifest import Manifest
from lanehost.disk_cache.manifests import layout_folders, reason_of
from lanehost.disk_cache.regular_file import open_regular

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 1 << 20
_PIECE_BYTES = 1 << 20
_NAME = re.compile(r"(?P<key>[0-9a-f]{64})\.r(?P<rank>\d{1,5})of(?P<world>\d{1,5})\.safetensors")
_TEMPORARY = re.compile(r"\.(?P<key>[0-9a-f]{64})\.r\d{1,5}of\d{1,5}\.\d+\.tmp")
_CHECKSUM = re.compile(rb'"checksum":"([0-9a-f]{32})"')
_TOKENS = frozenset({"num_tokens", "tokens_digest"})


def files_of(folder: Path, header: FileHeader) -> Iterator[Path]:
    """Yield the files of an entry that this host has, of all its ranks."""
    layout = folder / header.layout
    for path in sorted(layout.glob(f"{header.key}.r*of*.safetensors")):
        if _NAME.fullmatch(path.name) is not None:
            yield path


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What this host has of the files of entries.

    Attributes:
        missing: Files that should be here.
        num_elsewhere: Files of ranks of which nothing is here, but of their fellows: another
            host has them.
        orphans: Files of no entry, or half of one; while a server runs also what it writes now.
    """

    missing: tuple[Path, ...]
    num_elsewhere: int
    orphans: tuple[Path, ...]


def survey(folder: Path, manifests: Iterable[Manifest]) -> Survey:
    """Compare the files that are there with those that entries should have.

    Raises:
        OSError: The folder cannot be read.
    """
    known = {one.header.name: one for one in manifests}
    entries = {(name.layout, name.key) for name in known}
    there: set[Path] = set()
    ranks_here: dict[tuple[str, int], set[int]] = defaultdict(set)
    orphans: list[Path] = []
    for layout in layout_folders(folder):
        for path in sorted(layout.iterdir()):
            whole = _NAME.fullmatch(path.name)
            if whole is not None and (layout.name, whole["key"]) in entries:
                there.add(path)
                ranks_here[layout.name, int(whole["world"])].add(int(whole["rank"]))
            elif whole is not None or _TEMPORARY.fullmatch(path.name) is not None:
                orphans.append(path)
    missing, num_elsewhere = _missing(folder, known, there, ranks_here)
    return Survey(missing=missing, num_elsewhere=num_elsewhere, orphans=tuple(orphans))


def _missing(
    folder: Path,
    entries: Mapping[FileName, Manifest],
    there: Collection[Path],
    ranks_here: Mapping[tuple[str, int], Collection[int]],
) -> tuple[tuple[Path, ...], int]:
    """Return which files should be here and are not, and how many are on another host."""
    missing: list[Path] = []
    num_elsewhere = 0
    for name, manifest in entries.items():
        world_size = len(manifest.rank_bytes)
        here = ranks_here.get((name.layout, world_size), ())
        for rank in range(world_size):
            path = folder / name.layout / f"{name.key}.r{rank}of{world_size}.safetensors"
            if path in there:
                continue
            if here and rank not in here:
                num_elsewhere += 1
            else:
                missing.append(path)
    return tuple(missing), num_elsewhere


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
