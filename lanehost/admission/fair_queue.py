"""Sequences that wait with one priority, in an order that is fair between scopes.

Start-time fair queueing (Goyal, Vin and Cheng, 1996). Work is counted on a clock of its
own, on which a job of cost c moves its scope, of weight w, by c / w. A scope's next job
starts where its last one finished, or now if the scope had nobody waiting. Who starts
first is the head, and now is where the job that was last taken started. All of one cost:

    weight 2   |--a1--|--a2--|--a3--|--a4--|
    weight 1   |------b1-----|------b2-----|      taken: a1 b1 a2 a3 b2 a4

Laws: within a scope first come, first served; of two scopes that keep jobs waiting,
neither gets ahead, in work per weight, by more than one job of each; who was away has
saved nothing up, and when nobody waits, nobody owes anything. What comes back is not
paid for again, and goes before all but the head that it gave way to; what lost its lane with
the group goes before all.

It knows no bounds and no priorities (`lanehost.admission.line`).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from math import lcm

from lanehost.job import Job
from lanehost.lanes.sequence import Sequence


@dataclass(frozen=True, slots=True, eq=False)
class _Arrival:
    number: int
    sequence: Sequence


@dataclass(slots=True, eq=False)
class _Scope:
    """New jobs of one scope as they came, and where on the clock the first of them starts."""

    start: int = 0
    arrivals: dict[str, _Arrival] = field(default_factory=dict[str, _Arrival])

    @property
    def first(self) -> _Arrival:
        return next(iter(self.arrivals.values()))


class FairQueue:
    """Who is next among those that wait with one priority. Owned by the line."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        """Begin empty; a scope without a weight has 1."""
        self._weights = weights
        # A tick of the clock is one token at the weight that all weights divide: no fractions.
        self._ticks_per_token = lcm(*weights.values())
        self._now = 0
        self._numbers = count()
        self._scopes: dict[str, _Scope] = {}
        # Those that came back, and heads that they gave way to: before all others, in this order.
        self._front: list[Sequence] = []

    def __repr__(self) -> str:
        waiting = {scope: len(of.arrivals) for scope, of in self._scopes.items() if of.arrivals}
        return f"<FairQueue {len(self._front)} in front, {waiting}>"

    def head(self, *, without: Collection[str] = ()) -> Sequence | None:
        """Return who is next; the same until somebody joins, leaves or is taken.

        Args:
            without: Scopes that are passed over this time.
        """
        for sequence in self._front:
            if sequence.job.scope not in without:
                return sequence
        scopes = [
            scope for name, scope in self._scopes.items() if scope.arrivals and name not in without
        ]
        first = min(scopes, key=lambda scope: (scope.start, scope.first.number), default=None)
        return None if first is None else first.first.sequence

    def join(self, sequence: Sequence) -> None:
        """Add a new job's sequence, as the last of its scope."""
        job = sequence.job
        scope = self._scopes.setdefault(job.scope, _Scope())
        if not scope.arrivals:
            scope.start = max(scope.start, self._now)
        scope.arrivals[job.job_id] = _Arrival(next(self._numbers), sequence)

    def rejoin(self, sequence: Sequence) -> None:
        """Add one that was taken and gave its lane back: first in its scope, and paid for.

        If the head is another scope's, the lane was given up for it: it stays the head.
        """
        head = self.head()
        if head is None or head.job.scope == sequence.job.scope:
            self._front.insert(0, sequence)
            return
        if not self._front:
            self._front.append(head)
        self._front.insert(1, sequence)

    def put_first(self, sequences: Iterable[Sequence]) -> None:
        """Put those that lost their lanes before all others, in this order; they are paid for."""
        self._front[:0] = sequences

    def take(self, sequence: Sequence) -> None:
        """Take the head, or who is it without some scopes; its scope is charged if it is new."""
        scope = self._scopes.get(sequence.job.scope)
        if scope is not None and sequence.job.job_id in scope.arrivals:
            self._now = max(self._now, scope.start)
            scope.start += self._ticks(sequence.job)
        self.leave(sequence)

    def leave(self, sequence: Sequence) -> None:
        """Let one go that waits, wherever it stands; its scope is not charged."""
        if sequence in self._front:
            self._front.remove(sequence)
        scope = self._scopes.get(sequence.job.scope)
        if scope is not None:
            scope.arrivals.pop(sequence.job.job_id, None)
        if self.head() is None:
            self._scopes.clear()

    def _ticks(self, job: Job) -> int:
        weight = self._weights.get(job.scope, 1)
        return job.num_tokens * self._ticks_per_token // weight
