"""A lane: a numbered seat that carries one sequence, and its life table.

All moves of a lane are in `TRANSITIONS`. An illegal event raises and changes nothing.

A lane knows two truths. What plans have asked for (`num_planned_tokens`,
`num_planned_draws`) runs ahead of what results have brought (`state`), because plan
N+1 is written while step N is in flight. A lane that ends while a later step still
writes its blocks is DRAINING until that step has retired, and until the staged pass has
ended that it is in: a pass is never abandoned (ADR 30).

A lane whose prompt has come to an image is staged: it runs in passes, whole images at a time.
Text before the first image and behind the last runs in ordinary chunks, while images are encoded.
"""

from dataclasses import dataclass
from enum import Enum

from lanehost.job import Job, PromptImage
from lanehost.lanes.drafts import Drafter
from lanehost.lanes.sequence import Sequence

# Steps in a row that may run the foreground's prompts and not that of a lane in the background.
MAX_PASSED_OVER = 64


class LaneState(Enum):
    """Where a lane is, by the results that have come back."""

    FREE = "free"
    PREFILL = "prefill"
    DECODE = "decode"
    DRAINING = "draining"


class LaneEvent(Enum):
    """What can happen to a lane."""

    SEATED = "seated"
    PREFILLED = "prefilled"
    FINISHED = "finished"
    RELEASED = "released"


TRANSITIONS: dict[tuple[LaneState, LaneEvent], LaneState] = {
    (LaneState.FREE, LaneEvent.SEATED): LaneState.PREFILL,
    (LaneState.PREFILL, LaneEvent.PREFILLED): LaneState.DECODE,
    (LaneState.PREFILL, LaneEvent.FINISHED): LaneState.DRAINING,
    (LaneState.DECODE, LaneEvent.FINISHED): LaneState.DRAINING,
    (LaneState.DRAINING, LaneEvent.RELEASED): LaneState.FREE,
}


class IllegalLaneEvent(AssertionError):
    """An event that the table does not allow in this state."""


@dataclass(slots=True, kw_only=True)
class Lane:
    """One seat. Owned and changed by the engine loop alone, through `LaneTable`.

    Attributes:
        lane_id: The number of the seat.
        state: Where it is, by the results that have come back.
        sequence: What it carries; None when free.
        prefill_ids: The tokens that the sequence had when it sat down: they are computed first.
        max_draws: Tokens that may be drawn in this seat.
        block_ids: Its block table.
        block_size: Positions in a block.
        num_cached_tokens: Positions that were in the blocks when the job sat down.
        num_computed_tokens: Positions whose KV is there, by the results that have come back.
        num_planned_tokens: Positions that plans so far write.
        num_planned_draws: Tokens that plans so far draw.
        drafter: Guesses what it says next.
        is_guessing: A guess of it is in flight, so where it is will be known from the result.
        is_in_pass: A staged pass has its rows, and the last slice of it is in no plan yet.
        is_alone: A step that it shared could not be run: it has its next one for itself.
        is_owed: A step that it decoded in was not run: it decodes before any prompt runs.
        num_passed_over: Steps in a row that ran prompts, and not the one that it has to run.
        last_step_id: The last step that has rows of this lane; 0 when none has.
        is_announced: The ranks were told of the join.
        num_announced_blocks: Blocks that the ranks were told of.
        seat_number: Rises with every seating: who sat down first.
    """

    lane_id: int
    state: LaneState = LaneState.FREE
    sequence: Sequence | None = None
    prefill_ids: tuple[int, ...] = ()
    max_draws: int = 0
    block_ids: tuple[int, ...] = ()
    block_size: int = 1
    num_cached_tokens: int = 0
    num_computed_tokens: int = 0
    num_planned_tokens: int = 0
    num_planned_draws: int = 0
    drafter: Drafter | None = None
    is_guessing: bool = False
    is_in_pass: bool = False
    is_alone: bool = False
    is_owed: bool = False
    num_passed_over: int = 0
    last_step_id: int = 0
    is_announced: bool = False
    num_announced_blocks: int = 0
    seat_number: int = 0

    def __repr__(self) -> str:
        if self.sequence is None:
            return f"<Lane {self.lane_id} {self.state.name}>"
        job = self.sequence.job
        return (
            f"<Lane {self.lane_id} {self.state.name} job {job.job_id} "
            f"{self.num_planned_tokens}/{job.num_tokens}>"
        )

    @property
    def job(self) -> Job:
        """The job whose sequence it carries; there must be one."""
        assert self.sequence is not None, f"{self!r} carries nothing"
        return self.sequence.job

    @property
    def is_running(self) -> bool:
        """Whether it carries a job that has not ended."""
        return self.state in (LaneState.PREFILL, LaneState.DECODE)

    @property
    def is_warm(self) -> bool:
        """Whether it only computes a prompt, and draws nothing."""
        return self.max_draws == 0

    @property
    def is_filled(self) -> bool:
        """Whether all that it computes first is there."""
        return self.num_computed_tokens >= len(self.prefill_ids)

    @property
    def is_background(self) -> bool:
        """Whether it gives way to those in the foreground."""
        assert self.sequence is not None, f"{self!r} carries nothing"
        return self.sequence.is_background

    @property
    def is_suspect(self) -> bool:
        """Whether no step of another may be in flight with one of its own."""
        assert self.sequence is not None, f"{self!r} carries nothing"
        return self.sequence.is_suspect

    @property
    def fills_last(self) -> bool:
        """Whether its prompt lets others go first: in the background, and not for ever."""
        return self.is_background and self.num_passed_over < MAX_PASSED_OVER

    @property
    def num_room_tokens(self) -> int:
        """Positions that its blocks can hold."""
        return len(self.block_ids) * self.block_size

    def fire(self, event: LaneEvent) -> None:
        """Move along the table, or fail loudly and stay put.

        Raises:
            IllegalLaneEvent: the table has no such move.
        """
        try:
            self.state = TRANSITIONS[self.state, event]
        except KeyError:
            raise IllegalLaneEvent(f"{event.name} in {self.state.name}: {self!r}") from None

    @property
    def images_left(self) -> tuple[PromptImage, ...]:
        """The images of its prompt that are in no plan yet; a plan has an image whole."""
        images = self.job.images
        return images and tuple(one for one in images if one.start >= self.num_planned_tokens)

    @property
    def fill_end(self) -> int:
        """Where ordinary chunks end: at the next image, else with all that comes first."""
        images = self.images_left
        return images[0].start if images else len(self.prefill_ids)

    @property
    def wants_staging(self) -> bool:
        """Whether its prompt has come to an image, which waits for a pass."""
        return (
            self.is_running
            and not self.is_in_pass
            and bool(self.images_left)
            and self.num_planned_tokens == self.fill_end
        )

    @property
    def wants_prefill(self) -> bool:
        """Whether it wants an ordinary chunk, of text that comes next."""
        return self.is_running and not self.is_in_pass and self.num_planned_tokens < self.fill_end

    @property
    def wants_decode(self) -> bool:
        """Whether what comes first is planned whole, and more tokens may be drawn."""
        return (
            self.is_running
            and not self.is_in_pass
            and self.num_planned_tokens >= len(self.prefill_ids)
            and self.num_planned_draws < self.max_draws
        )

    @property
    def can_decode(self) -> bool:
        """Whether it wants to decode, has room for the next position, and need not wait.

        A lane with something to guess waits for what is in flight: a guess begins behind
        a token that is known.
        """
        return self.can_decode_now and (self.is_settled or not self.guess(1))

    @property
    def can_decode_now(self) -> bool:
        """Whether it wants to decode and has room for the next position; then it does not guess."""
        return self.wants_decode and not self.lacks_room and not self.is_guessing

    @property
    def lacks_room(self) -> bool:
        """Whether its blocks have no place for the next position."""
        return not self.is_guessing and self.num_planned_tokens >= self.num_room_tokens

    @property
    def is_settled(self) -> bool:
        """Whether nothing of it is in flight."""
        return self.num_planned_tokens == self.num_computed_tokens

    def guess(self, limit: int) -> tuple[int, ...]:
        """Return at most `limit` tokens that it may draw next, within its room and most tokens."""
        if self.drafter is None:
            return ()
        room = self.num_room_tokens - self.num_planned_tokens - 1
        return self.drafter.propose(min(limit, room, self.max_draws - self.num_planned_draws - 1))
