"""What a trail is made of, and its bytes: msgpack maps, one a record.

Laws: what is packed unpacks to an equal record; bytes that are no record of ours raise
`NotARecord`, whatever they are. Sizes are bounded before anything is allocated.

Redacted, a record holds no token id of a prompt, and nothing that they can be guessed
from: see `Redactor`.
"""

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter

from lanehost.frames import NotARecord, check_fields, pack_fields, unpack_fields
from lanehost.job import Priority
from lanehost.rank_group.facts import GroupFacts
from ranks.plan import Chunk, Draw, LaneDraft, LaneFault, RefusalKind, StepPlan

MAX_RECORD_BYTES = 64 * 1024 * 1024
_DIGEST_BYTES = 16
_NARROW = (1 << 32) - 1
_WIDE = (1 << 64) - 1
_WIDE_NUMBERS = frozenset(
    {
        "at_ns",
        "compute_ns",
        "follows",
        "image_id",
        "kv_bytes_per_block",
        "pass_id",
        "seed",
        "step_id",
    }
)
_AT_LEAST_ONE = frozenset({"block_size", "num_lanes", "vocab_size", "world_size"})
# What stands where a token id of a prompt was.
REDACTED_ID = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first record of each file: which run it is of, and what the ranks were.

    `file_number` counts the files of a run from 1. With `keeps_images` the pixels of images are
    there. `dtype`, `device` and `weights` are what
    the operator asked for; what came of it is in `facts`.
    """

    build: str
    run_id: str
    file_number: int
    keeps_prompts: bool
    model_path: str
    dtype: str
    device: str
    facts: GroupFacts
    weights: str = "auto"
    keeps_images: bool = False
    kind: Literal["header"] = "header"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedImage:
    """An image in a prompt: where its block is, and what it is; its pixels only where kept."""

    start: int
    num_tokens: int
    digest: bytes
    width: int
    height: int
    pixels: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobArrived:
    """A job joined the line. Redacted, its ids are all `REDACTED_ID`."""

    at_ns: int
    job_id: str
    label: str
    prompt_ids: tuple[int, ...]
    prompt_digest: bytes = b""
    max_tokens: int
    draw: Draw
    scope: str = ""
    priority: Priority = Priority.FOREGROUND
    images: tuple[RecordedImage, ...] = ()
    kind: Literal["job_arrived"] = "job_arrived"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeated:
    """A job took a lane; `num_cached_tokens` of its sequence were in its blocks already."""

    at_ns: int
    job_id: str
    lane_id: int
    num_cached_tokens: int
    kind: Literal["job_seated"] = "job_seated"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSubmitted:
    """A plan went to the ranks. Redacted, ids of prompts and drafts are all `REDACTED_ID`.

    `chunk_digests` are of `StepPlan.prompts`.
    """

    at_ns: int
    plan: StepPlan
    chunk_digests: tuple[bytes, ...] = ()
    kind: Literal["step_submitted"] = "step_submitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReturned:
    """A result came back; its maps are pairs of a lane and what it gave."""

    at_ns: int
    step_id: int
    epoch: int
    drawn: tuple[tuple[int, int], ...]
    failures: tuple[tuple[int, LaneFault], ...]
    accepted: tuple[tuple[int, tuple[int, ...]], ...] = ()
    digest: bytes
    compute_ns: int
    kind: Literal["step_returned"] = "step_returned"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTurnedDown:
    """The ranks refused a plan, `refusal` says why."""

    at_ns: int
    step_id: int
    epoch: int
    refusal: RefusalKind = RefusalKind.MISMATCH
    reason: str
    kind: Literal["step_turned_down"] = "step_turned_down"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageEncoded:
    """The rows of an image are on all ranks: plans may name it from here on."""

    at_ns: int
    epoch: int
    image_id: int
    digest: bytes
    kind: Literal["image_encoded"] = "image_encoded"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDropped:
    """The rows of an image are to go: plans name it no more."""

    at_ns: int
    epoch: int
    image_id: int
    kind: Literal["image_dropped"] = "image_dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWasLost:
    """An epoch has ended: its steps in flight do not come back, and the next has others."""

    at_ns: int
    epoch: int
    rank: int | None
    reason: str
    kind: Literal["group_was_lost"] = "group_was_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochBegan:
    """The next epoch's ranks are there: lanes and blocks are free, step ids begin at 1."""

    at_ns: int
    epoch: int
    kind: Literal["epoch_began"] = "epoch_began"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """A job's terminal event: why it ended, or the class of its error; and its reply."""

    at_ns: int
    job_id: str
    ending: str
    token_ids: tuple[int, ...]
    kind: Literal["job_ended"] = "job_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Recording stopped here while the server went on."""

    at_ns: int
    reason: str
    kind: Literal["cut"] = "cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The run ended in order; nothing comes after."""

    at_ns: int
    kind: Literal["closed"] = "closed"


Note = (
    JobArrived
    | JobSeated
    | StepSubmitted
    | StepReturned
    | StepTurnedDown
    | ImageEncoded
    | ImageDropped
    | GroupWasLost
    | EpochBegan
    | JobEnded
    | Cut
    | Closed
)
Record = Header | Note

_Run = TypeVar("_Run", Chunk, LaneDraft)
_ADAPTER: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="kind")])


def pack(record: Record) -> bytes:
    """Return the bytes of a record."""
    return pack_fields(_ADAPTER.dump_python(record))


def unpack(payload: bytes) -> Record:
    """Read the bytes of one record.

    Raises:
        NotARecord: they are none of ours.
    """
    fields = unpack_fields(payload)
    _check_numbers("record", fields)
    record = check_fields(_ADAPTER, fields)
    if isinstance(record, StepReturned):
        _check_lanes(record)
    return record


# Any: what msgpack gives, not looked at yet.
def _check_numbers(name: str, value: Any) -> None:
    """Refuse numbers that no run has: what reads records counts and packs with them."""
    match value:
        case dict():
            for key, part in value.items():
                _check_numbers(str(key), part)
        case tuple():
            for part in value:
                _check_numbers(name, part)
        case bool():
            return
        case int():
            low = 1 if name in _AT_LEAST_ONE else 0
            high = _WIDE if name in _WIDE_NUMBERS else _NARROW
            if not low <= value <= high:
                raise NotARecord(f"{name}: a number out of its range")
        case _:
            return


def _check_lanes(record: StepReturned) -> None:
    """Refuse a result that names a lane twice."""
    ends = [lane_id for lane_id, _ in (*record.drawn, *record.failures)]
    guessed = [lane_id for lane_id, _ in record.accepted]
    if len(set(ends)) != len(ends) or len(set(guessed)) != len(guessed):
        raise NotARecord("step_returned: a lane twice")


def without_pixels(note: Note) -> Note:
    """Return the note with the digests of images alone."""
    if isinstance(note, JobArrived) and note.images:
        return replace(note, images=tuple(replace(one, pixels=b"") for one in note.images))
    return note


def _hide(run: _Run) -> _Run:
    return replace(run, token_ids=(REDACTED_ID,) * len(run.token_ids))


class Redactor:
    """Takes prompts out of records and puts digests in.

    The digests are keyed, and the key is written nowhere: within one run equal prompts
    are seen to be equal, and nothing can be guessed by trying prompts. The digests of
    plans and results cover what is fed, so they are put under the key as well.
    """

    def __init__(self, key: bytes) -> None:
        """Begin; `key` is 16 to 64 random bytes."""
        self._key = key

    def redact(self, note: Note) -> Note:
        """Return the note without prompts."""
        match note:
            case JobArrived(prompt_ids=ids):
                hidden = (REDACTED_ID,) * len(ids)
                return replace(
                    note,
                    prompt_ids=hidden,
                    prompt_digest=self._digest_ids(ids),
                    images=tuple(
                        replace(one, digest=self._digest(one.digest), pixels=b"")
                        for one in note.images
                    ),
                )
            case StepSubmitted(plan=plan):
                digests = tuple(self._digest_ids(chunk.token_ids) for chunk in plan.prompts)
                return replace(note, plan=self._redact_plan(plan), chunk_digests=digests)
            case StepReturned(digest=digest) | ImageEncoded(digest=digest):
                return replace(note, digest=self._digest(digest))
            case StepTurnedDown() | GroupWasLost():
                # A rank's reason may name a token id.
                return replace(note, reason="redacted")
            case _:
                return note

    def _redact_plan(self, plan: StepPlan) -> StepPlan:
        """Hide chunks, and drafts, which are guessed from prompts; the digest covers both."""
        staged = plan.staged
        return replace(
            plan,
            staged=None
            if staged is None
            else replace(staged, chunks=tuple(_hide(chunk) for chunk in staged.chunks)),
            chunks=tuple(_hide(chunk) for chunk in plan.chunks),
            drafts=tuple(_hide(draft) for draft in plan.drafts),
            digest=self._digest(plan.digest),
        )

    def _digest_ids(self, token_ids: tuple[int, ...]) -> bytes:
        return self._digest(b"".join(one.to_bytes(4, "little") for one in token_ids))

    def _digest(self, content: bytes) -> bytes:
        return blake2b(content, digest_size=_DIGEST_BYTES, key=self._key).digest()
