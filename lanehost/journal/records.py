"""What a journal is made of, and its bytes: msgpack maps, one a record.

Laws: what is packed unpacks to an equal record; bytes that are no record of ours raise
`NotARecord`, whatever they are. Numbers and lengths are bounded; what depends on the model is
judged by the door, like that of any request.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from lanehost.frames import check_fields, pack_fields, unpack_fields
from lanehost.job import DiskUse, Finished, Priority, StopParams
from ranks.plan import Draw

MAX_RECORD_BYTES = 64 * 1024 * 1024
MAX_IMAGES = 1024

_Number = Annotated[int, Field(ge=0, lt=1 << 48)]
_TokenId = Annotated[int, Field(ge=0, lt=1 << 32)]
_Seconds = Annotated[float, Field(ge=0, lt=1 << 40, allow_inf_nan=False)]
_Run = tuple[_Number, _Number, tuple[_TokenId, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalModel:
    """All that decides a reply beside its request: another model goes on with another one."""

    weights_digest: str
    config_digest: str
    text_digest: str
    weights: str
    dtype: str
    device: str
    vocab_size: _Number
    eos_token_ids: tuple[_TokenId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first record of each file: who wrote it, and what replies it holds are of."""

    build: str
    model: JournalModel
    kind: Literal["header"] = "header"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalImage:
    """An image in a prompt: where its block is, and its pixels; those of ended replies are gone."""

    start: _Number
    num_tokens: _Number
    digest: Annotated[bytes, Field(min_length=32, max_length=32)]
    width: Annotated[int, Field(ge=1, lt=1 << 16)]
    height: Annotated[int, Field(ge=1, lt=1 << 16)]
    pixels: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A request that got a place in the line, with all that its reply depends on.

    `number` stands for it in the records behind. `num_recoveries` counts the starts of a master
    that it has lived through since its last token.
    """

    number: _Number
    job_id: str
    scope: str
    label: str
    priority: Priority
    prompt_ids: tuple[_TokenId, ...]
    marks: tuple[_Number, ...]
    max_tokens: _Number
    draw: Draw
    stop: StopParams
    disk_use: DiskUse = DiskUse.DEFAULT
    images: Annotated[tuple[JournalImage, ...], Field(max_length=MAX_IMAGES)] = ()
    num_recoveries: _Number = 0
    kind: Literal["accepted"] = "accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """New tokens of any number of streams: of each its number, the index of the first, the ids."""

    runs: tuple[_Run, ...]
    kind: Literal["drawn"] = "drawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A stream's end, at a time of the world; without a last event it failed."""

    number: _Number
    at_s: _Seconds
    finished: Finished | None
    kind: Literal["ended"] = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """All that was known when the file was begun stands before this."""

    kind: Literal["ready"] = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The master ended in order; nothing comes after."""

    kind: Literal["closed"] = "closed"


Note = Accepted | Drawn | Ended | Ready | Closed
Record = Header | Note

_ADAPTER: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="kind")])


def pack(record: Record) -> bytes:
    """Return the bytes of a record.

    Raises:
        ValueError: it is larger than a record may be.
    """
    # Those of every step go by without the adapter: they are what costs.
    fields = (
        {"runs": record.runs, "kind": "drawn"}
        if isinstance(record, Drawn)
        else _ADAPTER.dump_python(record)
    )
    packed = pack_fields(fields)
    if len(packed) > MAX_RECORD_BYTES:
        raise ValueError(f"a record has {len(packed)} bytes, limit {MAX_RECORD_BYTES}")
    return packed


def unpack(payload: bytes) -> Record:
    """Read the bytes of one record.

    Raises:
        NotARecord: they are none of ours.
    """
    return check_fields(_ADAPTER, unpack_fields(payload))
