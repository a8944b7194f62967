"""A job's token ids, prompt and generated, as they grow.

What the client has been sent is the truth: a job that gave up its lane goes on from
here, in any lane, with the tokens that it would have drawn there.
"""

from dataclasses import dataclass, field

from lanehost.job import Job, Priority


@dataclass(slots=True, eq=False)
class Sequence:
    """Owned by the engine loop, which alone appends to it."""

    job: Job
    generated_ids: list[int] = field(default_factory=list[int])
    was_parked: bool = False
    num_yields: int = 0
    is_promoted: bool = False

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
    def num_left(self) -> int:
        """Tokens that may still be generated."""
        return self.job.max_tokens - len(self.generated_ids)
