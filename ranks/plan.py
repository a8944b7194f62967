"""The words that master and ranks share: what a step will do, and what it gave.

Laws: a plan holds everything that two ranks could see differently, so no rank
decides anything. Step ids rise within an epoch, from 1, and each plan names the step
that it follows: so none can be missing, and none runs behind one that failed. A rank
that applies plans blindly, from an empty state, ends in the same state as its fellows.

Prompts with images run in staged passes: all their rows go through some layers a step, in
a slice that shares no product with what else the step runs (ADR 26).

This module knows no protobuf, no torch and no clock.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b

_DIGEST_BYTES = 16
# Sets digests of steps with a staged slice apart from those of all others.
_STAGED_PERSON = b"staged slice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How a lane draws its tokens; `temperature` 0 is greedy, `top_k` None keeps all."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneJoin:
    """A sequence takes a free lane, with an empty block table.

    The KV of its first `num_cached_tokens` positions is already in the blocks that it
    gets in the same plan: other lanes computed it, and it may be shared with them. It
    is a whole number of blocks, so nothing that is shared is ever written.
    """

    lane_id: int
    draw: Draw
    num_cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneGrow:
    """`block_ids` are appended to the lane's block table."""

    lane_id: int
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkImage:
    """All rows of one image, from position `start` on: never a part of them.

    `image_id` is the number that the master gave the image in this epoch; they rise, and
    none is given twice.
    """

    image_id: int
    start: int
    num_tokens: int

    @property
    def stop(self) -> int:
        """The position behind its last row."""
        return self.start + self.num_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A part of a prompt: `token_ids` at positions `start`, `start` + 1 and so on.

    When `draws`, one token is drawn after the last of them: the prompt is complete.
    `images`, in rising order of start, are those whose rows take the place of embeddings
    there; only chunks of a staged slice have any.
    """

    lane_id: int
    start: int
    token_ids: tuple[int, ...]
    draws: bool
    images: tuple[ChunkImage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSlice:
    """Some layers of a pass over prompts with images: from `first_layer` to before `stop_layer`.

    The slice from layer 0 opens the pass `pass_id`, and finds each chunk at the end of its
    lane; each later slice names the same chunks and goes on where the last one stopped; the
    one up to the last layer of the model ends the pass: only then do its lanes move on and
    draw. One pass is open at a time, and its lanes run nothing else. Ids of passes rise
    within an epoch. A step with a slice that FAILED drops the pass.
    """

    pass_id: int
    chunks: tuple[Chunk, ...]
    first_layer: int
    stop_layer: int

    @property
    def num_tokens(self) -> int:
        """Rows that go through its layers."""
        return sum(len(chunk.token_ids) for chunk in self.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneDraft:
    """A guess of what a decoding lane draws next: run behind the token that it drew last.

    The guess is kept as far as it equals what is drawn anyway, so it changes no reply.
    """

    lane_id: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """What one step does, in this order: leaves, joins, grows, then chunks and decodes, `staged`.

    A lane in `decodes` runs the token that it drew last at its next position and
    draws another. The master may write it before it knows that token: it is taken
    on the rank itself. A lane is in `chunks` or `decodes` at most once. A lane in
    `drafts` is in `decodes` too, and nothing of it is in flight: how far it gets is
    known only from the result.

    `tells_parts` asks for `StepResult.parts`, which otherwise nobody measures.
    `follows` is the step that must be the last that has run, 0 for none: so a plan that
    was written behind a step that failed is not run either.
    """

    step_id: int
    epoch: int
    follows: int = 0
    leaves: tuple[int, ...] = ()
    joins: tuple[LaneJoin, ...] = ()
    grows: tuple[LaneGrow, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    decodes: tuple[int, ...] = ()
    drafts: tuple[LaneDraft, ...] = ()
    digest: bytes = b""
    tells_parts: bool = False
    staged: StagedSlice | None = None

    @property
    def drafts_by_lane(self) -> dict[int, tuple[int, ...]]:
        """The guesses, by lane."""
        return {draft.lane_id: draft.token_ids for draft in self.drafts}

    @property
    def prompts(self) -> tuple[Chunk, ...]:
        """The parts of prompts that it has to do with: its chunks, and those of its slice."""
        return self.chunks if self.staged is None else (*self.chunks, *self.staged.chunks)

    @property
    def num_tokens(self) -> int:
        """Tokens that the step runs, without those of its staged slice."""
        num_chunked = sum(len(chunk.token_ids) for chunk in self.chunks)
        num_drafted = sum(len(draft.token_ids) for draft in self.drafts)
        return num_chunked + len(self.decodes) + num_drafted


class LaneFault(Enum):
    """What can go wrong in one lane alone."""

    NAN = "nan"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step gave.

    `drawn` maps a lane to its new token, `failures` a lane to its fault. `accepted` maps
    a lane to the part of its draft that was right: those tokens come before the new one.
    `parts` are the nanoseconds of `compute_ns` by what they went to, where the plan asked.
    """

    step_id: int
    epoch: int
    drawn: dict[int, int]
    failures: dict[int, LaneFault]
    accepted: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    digest: bytes
    compute_ns: int = 0
    parts: dict[str, int] = field(default_factory=dict[str, int])


class RefusalKind(Enum):
    """Why a step was not run.

    MISMATCH: the plan does not fit what this rank holds; the group is out of step.
    FAILED: it was begun and could not be run; it may be possible to run it in parts.
    SKIPPED: the step that it follows has not run.
    """

    MISMATCH = "mismatch"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRefused:
    """The step was not run: no lane has changed, and no rank waits in a collective of it."""

    step_id: int
    epoch: int
    kind: RefusalKind = RefusalKind.MISMATCH
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRows:
    """The rows of one lane in one step, as master and rank each resolve them.

    `start` is the first position written. `num_blocks` is the length of the lane's block
    table once it has grown, `gained_blocks` what it gained since it ran last: as every
    step tells the gain, equal digests mean equal tables. `token_ids` are those of a
    chunk, or of the draft behind a decode; None for a decode without one, since the
    master cannot know the token that it runs. `images` are those of a chunk of a staged slice.
    """

    lane_id: int
    start: int
    num_blocks: int
    gained_blocks: tuple[int, ...]
    token_ids: tuple[int, ...] | None
    images: tuple[ChunkImage, ...] = ()


def rows_digest(
    step_id: int,
    epoch: int,
    rows: Iterable[ResolvedRows],
    staged: StagedSlice | None = None,
) -> bytes:
    """Digest of the rows of a step: 16 bytes of BLAKE2b.

    The master writes it into the plan; a rank computes it again from its own lane
    tables and refuses the step when the two differ.

    Args:
        step_id: The step.
        epoch: Its epoch.
        rows: Of its chunks, then of its decodes, then of the chunks of its slice.
        staged: The slice, of which the pass and the layers are told too.
    """
    hasher = _rows_hasher(step_id, epoch, staged)
    for row in rows:
        token_ids = row.token_ids or ()
        numbers = (
            row.lane_id,
            row.start,
            row.num_blocks,
            row.token_ids is None,
            len(row.gained_blocks),
            len(token_ids),
            *row.gained_blocks,
            *token_ids,
        )
        hasher.update(struct.pack(f"<{len(numbers)}I", *numbers))
        if staged is not None:
            hasher.update(struct.pack("<I", len(row.images)))
            for image in row.images:
                hasher.update(struct.pack("<QII", image.image_id, image.start, image.num_tokens))
    return hasher.digest()


def _rows_hasher(step_id: int, epoch: int, staged: StagedSlice | None) -> blake2b:
    head = struct.pack("<QI", step_id, epoch)
    if staged is None:
        return blake2b(head, digest_size=_DIGEST_BYTES)
    head += struct.pack("<QII", staged.pass_id, staged.first_layer, staged.stop_layer)
    return blake2b(head, digest_size=_DIGEST_BYTES, person=_STAGED_PERSON)


def result_digest(plan_digest: bytes, token_ids: Iterable[int], drawn: dict[int, int]) -> bytes:
    """Digest of what a rank ran and drew: equal on every rank, or the group is out of step.

    `token_ids` are the tokens that were fed, in row order, those of a staged slice last, with
    each of its slices; `drawn` is in any order.
    """
    fed = tuple(token_ids)
    told = [number for pair in sorted(drawn.items()) for number in pair]
    numbers = (len(fed), *fed, *told)
    hasher = blake2b(plan_digest, digest_size=_DIGEST_BYTES)
    hasher.update(struct.pack(f"<{len(numbers)}I", *numbers))
    return hasher.digest()
