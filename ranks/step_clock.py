"""Where the time of one step goes, by part.

Laws: every moment belongs to exactly one part, so the parts add up to the whole. A clock
that is not asked for parts is read twice a step, at its ends.

    other      the plan's checks, seating, and what is in no other part
    forward    the model, where it does not say more
    exchange   collectives, waiting for the other ranks included
    sampling   from logits to token ids
    staged     a slice of a staged pass

A model that counts for itself (`CausalLM.parts_ns`) has its own parts instead of `forward`; what
is left of it is `inputs`: laying out rows, tables and embeddings, and calls into the library.
"""

from collections.abc import Callable

_REST, _INPUTS, _FORWARD = "other", "inputs", "forward"


class StepClock:
    """Counts nanoseconds, one step after the other."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        """Take a monotonic clock in nanoseconds."""
        self._clock_ns = clock_ns
        self._begun_ns = self._last_ns = 0
        self._counts_parts = False
        self._part = _REST
        self._parts: dict[str, int] = {}

    def begin(self, *, counts_parts: bool) -> None:
        """Begin a step, in the part `other`."""
        self._counts_parts = counts_parts
        self._part, self._parts = _REST, {}
        self._begun_ns = self._last_ns = self._clock_ns()

    def enter(self, part: str) -> str:
        """End the part that runs and begin another; returns the one that ran."""
        ended, self._part = self._part, part
        if self._counts_parts:
            now_ns = self._clock_ns()
            self._parts[ended] = self._parts.get(ended, 0) + now_ns - self._last_ns
            self._last_ns = now_ns
        return ended

    def split_forward(self, parts_ns: Callable[[], dict[str, int]]) -> None:
        """Put in the place of `forward`, which has ended, what the model counted itself."""
        if not self._counts_parts:
            return
        known = parts_ns()
        if not known:
            return
        rest = self._parts.pop(_FORWARD, 0) - sum(known.values())
        for part, ns in {**known, _INPUTS: known.get(_INPUTS, 0) + rest}.items():
            self._parts[part] = self._parts.get(part, 0) + ns

    def end(self) -> tuple[int, dict[str, int]]:
        """End the step: all its nanoseconds, and those of its parts where they were counted."""
        if not self._counts_parts:
            return self._clock_ns() - self._begun_ns, {}
        self.enter(_REST)
        return self._last_ns - self._begun_ns, self._parts
