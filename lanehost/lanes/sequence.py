"""A job's token ids, prompt and generated, as they grow.

What the client has been sent is the truth: a job that gave up its lane goes on from
here, in any lane, with the tokens that it would have drawn there.
"""

from dataclasses import dataclass, field

from lanehost.job import Job, Priority

# Losses of the group with new rows of it in flight, and none of these come back: then it is
# told from its company by running alone, and one more is its own doing.
MAX_SHARED_LOSSES = 2


@dataclass(slots=True, eq=False)
class Sequence:
    """Owned by the engine loop, which alone appends to it.

    Attributes:
        job: What was asked for.
        generated_ids: The reply so far.
        was_parked: It gave up its lane for want of blocks.
        num_yields: How often it gave its lane to another.
        is_promoted: It waited its most in the background, and gives way no more.
        num_proved_tokens: The farthest position that it ever got through, in any lane and epoch.
        num_losses: Losses of the group that count against it, since it last got further.
        was_suspect: It had to run alone for such losses; it has guessed nothing since.
    """

    job: Job
    generated_ids: list[int] = field(default_factory=list[int])
    was_parked: bool = False
    num_yields: int = 0
    is_promoted: bool = False
    num_proved_tokens: int = 0
    num_losses: int = 0
    was_suspect: bool = False

    def __repr__(self) -> str:
        return (
            f"<Sequence {self.job.job_id} {len(self.job.prompt_ids)} prompt, "
            f"{len(self.generated_ids)} generated>"
        )

    @property
    def is_background(self) -> bool:
        """Whether it gives way to jobs in the foreground; not once it has waited its most."""
        return self.job.priority is Priority.BACKGROUND and not self.is_promoted

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Every token so far."""
        return (*self.job.prompt_ids, *self.generated_ids)

    @property
    def identity_ids(self) -> tuple[int, ...]:
        """What it shares with others that begin alike: its tokens, and images by what they are."""
        return (*self.job.identity_ids, *self.generated_ids)

    @property
    def num_left(self) -> int:
        """Tokens that may still be generated."""
        return self.job.max_tokens - len(self.generated_ids)

    @property
    def is_suspect(self) -> bool:
        """Whether it runs alone, for the group may have been lost by it."""
        return self.num_losses >= MAX_SHARED_LOSSES

    @property
    def is_poisoned(self) -> bool:
        """Whether the group was lost by it: nothing else was in flight."""
        return self.num_losses > MAX_SHARED_LOSSES

    def note_computed(self, num_tokens: int) -> None:
        """Note that so many positions are computed; getting further than ever clears it."""
        if num_tokens > self.num_proved_tokens:
            self.num_proved_tokens = num_tokens
            self.num_losses = 0

    def note_loss(self, num_planned_tokens: int) -> None:
        """Note that the group was lost with its rows in flight, up to a position.

        Replies are deterministic: what ran before will run again, so only rows beyond that
        can have been the cause.
        """
        if num_planned_tokens > self.num_proved_tokens:
            self.num_losses += 1
            self.was_suspect = self.was_suspect or self.is_suspect
