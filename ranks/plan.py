"""The words that master and ranks share: what a step will do, and what it gave.

Laws: a plan holds everything that two ranks could see differently, so no rank
decides anything. Step ids rise within an epoch, from 1, and each plan names the step
that it follows: so none can be missing, and none runs behind one that failed. A rank
that applies plans blindly, from an empty state, ends in the same state as its fellows.

This module knows no protobuf, no torch and no clock.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b

_DIGEST_BYTES = 16


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
class Chunk:
    """A part of a prompt: `token_ids` at positions `start`, `start` + 1 and so on.

    When `draws`, one token is drawn after the last of them: the prompt is complete.
    """

    lane_id: int
    start: int
    token_ids: tuple[int, ...]
    draws: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneDraft:
    """A guess of what a decoding lane draws next: run behind the token that it drew last.

    The guess is kept as far as it equals what is drawn anyway, so it changes no reply.
    """

    lane_id: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """What one step does, in this order: leaves, joins, grows, then chunks and decodes.

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

    @property
    def drafts_by_lane(self) -> dict[int, tuple[int, ...]]:
        """The guesses, by lane."""
        return {draft.lane_id: draft.token_ids for draft in self.drafts}

    @property
    def num_tokens(self) -> int:
        """Tokens that the step runs."""
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
    master cannot know the token that it runs.
    """

    lane_id: int
    start: int
    num_blocks: int
    gained_blocks: tuple[int, ...]
    token_ids: tuple[int, ...] | None


def rows_digest(step_id: int, epoch: int, rows: Iterable[ResolvedRows]) -> bytes:
    """Digest of the rows of a step: 16 bytes of BLAKE2b.

    The master writes it into the plan; a rank computes it again from its own lane
    tables and refuses the step when the two differ.
    """
    hasher = blake2b(struct.pack("<QI", step_id, epoch), digest_size=_DIGEST_BYTES)
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
    return hasher.digest()


def result_digest(plan_digest: bytes, token_ids: Iterable[int], drawn: dict[int, int]) -> bytes:
    """Digest of what a rank ran and drew: equal on every rank, or the group is out of step.

    `token_ids` are the tokens that were fed, in row order; `drawn` is in any order.
    """
    fed = tuple(token_ids)
    told = [number for pair in sorted(drawn.items()) for number in pair]
    numbers = (len(fed), *fed, *told)
    hasher = blake2b(plan_digest, digest_size=_DIGEST_BYTES)
    hasher.update(struct.pack(f"<{len(numbers)}I", *numbers))
    return hasher.digest()
