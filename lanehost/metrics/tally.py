"""What has happened since the start, in plain numbers.

Owned by the event loop, so nothing is locked. Numbers only rise. Keys are the values of
labels, and there are few of them: priorities, endings, classes of errors, and scopes,
which the operator names; never anything that a client may choose.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

from lanehost import errors
from lanehost.errors import LanehostError, StartupFailed
from lanehost.job import FinishReason, Priority
from lanehost.rank_group.events import LossCause
from ranks.plan import RefusalKind

QUEUE_BOUNDS_S = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
FIRST_TOKEN_BOUNDS_S = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 2, 3.5, 5, 10, 30, 60, 120, 300)
OUTPUT_TOKEN_BOUNDS_S = (
    *(0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.25, 0.5, 1, 2.5, 5),
)
STEP_BOUNDS_S = (
    *(0.0005, 0.001, 0.002, 0.004, 0.006, 0.01, 0.015, 0.025, 0.04, 0.06),
    *(0.1, 0.2, 0.4, 1, 2.5, 5, 10, 30),
)
RECOVERY_BOUNDS_S = (0.5, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300, 600, 1800)

# What a request can be refused with, and a job can end with, as far as errors go.
ERRORS = tuple(
    name
    for name, error in vars(errors).items()
    if isinstance(error, type)
    and issubclass(error, LanehostError)
    and error not in (LanehostError, StartupFailed)
)


class Histogram:
    """How often a value fell between bounds.

    >>> seconds = Histogram((0.1, 1))
    >>> for value in (0.1, 0.5, 7):
    ...     seconds.observe(value)
    >>> list(seconds.cumulated()), seconds.total
    ([(0.1, 1), (1, 2), (inf, 3)], 7.6)
    """

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Begin empty; `bounds` rise, and each belongs to what is below it."""
        self._bounds = (*bounds, float("inf"))
        self._counts = [0] * len(self._bounds)
        self.total = 0.0

    def __repr__(self) -> str:
        return f"<Histogram {sum(self._counts)} values, {self.total} in all>"

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def cumulated(self) -> Iterator[tuple[float, int]]:
        """Yield each bound, and how many values were not above it."""
        num_values = 0
        for bound, count in zip(self._bounds, self._counts, strict=True):
            num_values += count
            yield bound, num_values


def _zeros(*keys: str) -> Counter[str]:
    """Count from 0 what is known to be possible: an alarm needs the 0 before the 1."""
    return Counter(dict.fromkeys(keys, 0))


def _by_priority(bounds: Sequence[float]) -> dict[Priority, Histogram]:
    return {priority: Histogram(bounds) for priority in Priority}


@dataclass(slots=True, eq=False)
class Tally:
    """All that is counted.

    Attributes:
        accepted: Requests, by priority and scope.
        refused: Requests and other calls, by class of error.
        ended: Jobs, by ending: the reason, or the class of the error.
        prompt_tokens: Of accepted requests, by scope.
        cached_tokens: Of these, the ones that were in the prompt cache.
        generated_tokens: Of ended jobs, by scope.
        steps: Steps that ran.
        chunk_tokens: Prompt tokens that they ran.
        decode_tokens: Drawn tokens that they ran.
        draft_tokens: Guessed tokens that they ran.
        accepted_draft_tokens: Guessed tokens that were right.
        passes: Steps with two or more prompts.
        pass_prompts: Prompts in these.
        steps_refused: Steps that did not run, by kind.
        lanes_alone: Lanes that had to run alone.
        jobs_parked: Times that a job gave its lane back for want of blocks.
        jobs_yielded: Times that a job gave its lane to one that goes first.
        jobs_carried: Times that a job lost its lane with the rank group.
        epochs_lost: Times that the rank group was lost.
        queue: Seconds from arrival to the first lane.
        first_token: Seconds from arrival to the first token.
        output_token: Seconds between tokens, one value a job.
        ranks_lost: Ranks that were lost, by cause.
        epochs_formed: Groups that the ranks formed.
        recovery: Seconds from the end of an epoch to the next one.
        step_compute: Seconds that the ranks computed a step.
        image_tokens: Of the prompt tokens, those that stand for images, by scope.
        staged_passes: Staged passes that were begun.
        staged_rows: Their rows.
        staged_slices: Steps that ran some layers of one.
        staged_pause: Seconds between two tokens of a reply when slices ran in between.
        longest_stall_s: The longest of these.
    """

    accepted: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    refused: Counter[str] = field(default_factory=lambda: _zeros(*ERRORS))
    ended: Counter[str] = field(
        default_factory=lambda: _zeros(*(reason.value for reason in FinishReason), *ERRORS)
    )
    prompt_tokens: Counter[str] = field(default_factory=Counter[str])
    cached_tokens: Counter[str] = field(default_factory=Counter[str])
    generated_tokens: Counter[str] = field(default_factory=Counter[str])
    steps: int = 0
    chunk_tokens: int = 0
    decode_tokens: int = 0
    draft_tokens: int = 0
    accepted_draft_tokens: int = 0
    passes: int = 0
    pass_prompts: int = 0
    steps_refused: Counter[str] = field(
        default_factory=lambda: _zeros(*(kind.value for kind in RefusalKind))
    )
    lanes_alone: int = 0
    jobs_parked: int = 0
    jobs_yielded: int = 0
    jobs_carried: int = 0
    epochs_lost: int = 0
    queue: dict[Priority, Histogram] = field(default_factory=lambda: _by_priority(QUEUE_BOUNDS_S))
    first_token: dict[Priority, Histogram] = field(
        default_factory=lambda: _by_priority(FIRST_TOKEN_BOUNDS_S)
    )
    output_token: dict[Priority, Histogram] = field(
        default_factory=lambda: _by_priority(OUTPUT_TOKEN_BOUNDS_S)
    )
    ranks_lost: Counter[str] = field(
        default_factory=lambda: _zeros(*(cause.value for cause in LossCause))
    )
    epochs_formed: int = 0
    recovery: Histogram = field(default_factory=lambda: Histogram(RECOVERY_BOUNDS_S))
    step_compute: Histogram = field(default_factory=lambda: Histogram(STEP_BOUNDS_S))
    image_tokens: Counter[str] = field(default_factory=Counter[str])
    staged_passes: int = 0
    staged_rows: int = 0
    staged_slices: int = 0
    staged_pause: Histogram = field(default_factory=lambda: Histogram(STEP_BOUNDS_S))
    longest_stall_s: float = 0.0

    @classmethod
    def of(cls, scopes: Sequence[str]) -> Self:
        """Begin with zeros for each scope."""
        return cls(
            accepted=Counter({(one.value, scope): 0 for scope in scopes for one in Priority}),
            prompt_tokens=_zeros(*scopes),
            cached_tokens=_zeros(*scopes),
            generated_tokens=_zeros(*scopes),
            image_tokens=_zeros(*scopes),
        )
