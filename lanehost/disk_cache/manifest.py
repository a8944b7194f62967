"""What the master writes of an entry, last: with it the entry is there, without it never was.

    file = frame of the form (which format, which version), frame of the manifest

A frame is proved by its checksum (`lanehost.frames`). The manifest has the token ids, so that a
hit compares tokens and does not trust a hash, and what the entry is worth.

Laws: what is packed reads as an equal manifest; anything else is a reason, never an exception,
and never more memory than the most tokens take; a manifest that does not agree with itself is none.
"""

import io
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from lanehost.disk_cache.identity import IDENTITY_VERSION, prefix_keys, tokens_digest
from lanehost.disk_cache.interface import FileHeader, FileReason
from lanehost.frames import (
    FrameChanged,
    FrameReader,
    NotARecord,
    Proof,
    check_fields,
    pack_fields,
    unpack_fields,
)
from lanehost.image_ids import ImageRun, join_images, split_images

SUFFIX = ".manifest"
# Twice the longest context of today's models, and what their ids take at most.
MAX_TOKENS = 1 << 21
MAX_IMAGES = 1 << 14
MAX_MANIFEST_BYTES = 12 * 1024 * 1024
_FORMAT = "lanehost prompt cache entry"
_PROOF = Proof(b"prefixmanifest")

_Number = Annotated[int, Field(ge=0, lt=1 << 48)]
_TokenId = Annotated[int, Field(ge=0, lt=1 << 32)]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# Where an image begins, how many tokens it has, and its digest.
_Image = tuple[_Number, _Number, Annotated[bytes, Field(min_length=32, max_length=32)]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One entry.

    Attributes:
        header: What its files say.
        owner: The digest of the scope whose it is.
        token_ids: The identity ids of all that the state covers (`lanehost.image_ids`).
        block_size: Positions in a block.
        marks: Where in it another chat is likely to part, rising.
        rank_bytes: Of its file on each rank.
        hits: How often it was used; lives through restarts.
        used: When it was used last, in uses of all entries: no clock.
        created_s: When it was written, in seconds since 1970; for people.
    """

    header: FileHeader
    owner: str
    token_ids: tuple[int, ...]
    block_size: int
    marks: tuple[int, ...]
    rank_bytes: tuple[int, ...]
    hits: int
    used: int
    created_s: float

    @property
    def num_bytes(self) -> int:
        """Of its files on all ranks."""
        return sum(self.rank_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    format: Literal["lanehost prompt cache entry"]
    version: _Number


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fields:
    layout: _Digest
    key: _Digest
    tokens_digest: _Digest
    owner: _Digest
    token_ids: Annotated[tuple[_TokenId, ...], Field(max_length=MAX_TOKENS)]
    block_size: Annotated[int, Field(ge=1, lt=1 << 16)]
    marks: Annotated[tuple[_Number, ...], Field(max_length=1 << 16)]
    rank_bytes: Annotated[tuple[_Number, ...], Field(min_length=1, max_length=1 << 10)]
    hits: _Number
    used: _Number
    created_s: Annotated[float, Field(ge=0, lt=1 << 40, allow_inf_nan=False)]
    images: Annotated[tuple[_Image, ...], Field(max_length=MAX_IMAGES)] = ()


_FORM: TypeAdapter[_Form] = TypeAdapter(_Form)
_FIELDS: TypeAdapter[_Fields] = TypeAdapter(_Fields)


def pack_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest's file."""
    form = {"format": _FORMAT, "version": IDENTITY_VERSION}
    header = manifest.header
    plain_ids, images = split_images(manifest.token_ids)
    fields = {
        "layout": header.layout,
        "key": header.key,
        "tokens_digest": header.tokens_digest,
        "owner": manifest.owner,
        "token_ids": plain_ids,
        "block_size": manifest.block_size,
        "marks": manifest.marks,
        "rank_bytes": manifest.rank_bytes,
        "hits": manifest.hits,
        "used": manifest.used,
        "created_s": manifest.created_s,
        "images": tuple((run.start, run.num_tokens, run.digest) for run in images),
    }
    return _PROOF.frame(0, pack_fields(form)) + _PROOF.frame(1, pack_fields(fields))


def read_manifest(content: bytes) -> Manifest | FileReason:
    """Read a manifest's file, or say what it is instead."""
    frames = FrameReader(io.BytesIO(content), _PROOF, max_payload_bytes=MAX_MANIFEST_BYTES)
    try:
        return _read(frames)
    except FrameChanged:
        return FileReason.CHECKSUM if frames.number else FileReason.FOREIGN
    except NotARecord:
        return FileReason.FOREIGN


def _read(frames: FrameReader) -> Manifest | FileReason:
    form = frames.next_payload()
    if form is None:
        return FileReason.TORN
    if (wrong := _wrong_form(form)) is not None:
        return wrong
    payload = frames.next_payload()
    if payload is None or frames.next_payload() is not None or frames.num_torn_bytes:
        return FileReason.TORN
    return _checked(check_fields(_FIELDS, unpack_fields(payload)))


def _wrong_form(payload: bytes) -> FileReason | None:
    version = check_fields(_FORM, unpack_fields(payload)).version
    if version == IDENTITY_VERSION:
        return None
    return FileReason.OLDER if version < IDENTITY_VERSION else FileReason.NEWER


def _checked(fields: _Fields) -> Manifest | FileReason:
    """See that what it says of its tokens is so."""
    runs = [ImageRun(start=start, num_tokens=n, digest=d) for start, n, d in fields.images]
    token_ids = join_images(fields.token_ids, runs)
    keys = prefix_keys(fields.layout, fields.owner, token_ids, block_size=fields.block_size)
    num_tokens = len(token_ids)
    if num_tokens != len(keys) * fields.block_size or not keys or keys[-1] != fields.key:
        return FileReason.TOKENS
    if fields.tokens_digest != tokens_digest(token_ids):
        return FileReason.TOKENS
    return Manifest(
        header=FileHeader(
            layout=fields.layout,
            key=fields.key,
            num_tokens=num_tokens,
            tokens_digest=fields.tokens_digest,
        ),
        owner=fields.owner,
        token_ids=token_ids,
        block_size=fields.block_size,
        marks=fields.marks,
        rank_bytes=fields.rank_bytes,
        hits=fields.hits,
        used=fields.used,
        created_s=fields.created_s,
    )
