"""The waiting line: bounded in requests and in tokens, and fair between scopes.

Laws: a full line refuses at once and keeps nothing; what was refused leaves no trace; a
place is held from the moment of the promise, so that work done before a request is ready
(rendering, tokenizing) is bounded by the same line; a scope that floods it gets no other
refused.

Order: the foreground goes first, but after `MAX_OVERTAKES` of it in a row somebody who
waits in the background is next, and is promoted: it gives way no more. Within each it is
fair between scopes (`lanehost.admission.fair_queue`), and first come, first served within
a scope. So with one scope and one priority it is a plain queue (ADR 13).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from lanehost.admission.fair_queue import FairQueue
from lanehost.admission.shares import Shares
from lanehost.errors import Overloaded
from lanehost.lanes.sequence import Sequence
from lanehost.settings import LineSettings

MAX_OVERTAKES = 64


class Line:
    """Sequences that wait for a lane, and places promised to requests that are being prepared.

    Owned by the event loop: the door adds, the engine takes.
    """

    def __init__(
        self,
        settings: LineSettings,
        weights: Mapping[str, int] | None = None,
        *,
        max_overtakes: int = MAX_OVERTAKES,
    ) -> None:
        """Begin empty.

        Args:
            settings: The bounds.
            weights: The known scopes; none when nobody is told from anybody.
            max_overtakes: How many in a row may go before somebody in the background.
        """
        self._settings = settings
        self._weights = dict(weights or {})
        self._max_overtakes = max_overtakes
        self._places = Shares(settings.max_waiting, self._weights)
        self._tokens = Shares(settings.max_waiting_tokens, self._weights)
        self._num_promised: Counter[str] = Counter()
        self._waiting: dict[str, Sequence] = {}
        self._foreground = FairQueue(self._weights)
        self._background = FairQueue(self._weights)
        self._num_overtakes = 0

    def __repr__(self) -> str:
        return f"<Line {len(self._waiting)} jobs, {self._num_promised.total()} promised>"

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def weights(self) -> Mapping[str, int]:
        """The known scopes, by which the line is fair."""
        return self._weights

    @property
    def num_tokens(self) -> int:
        """Tokens that wait: of prompts, and of replies that gave up their lane."""
        return self._tokens.num_taken

    def promise(self, scope: str = "") -> None:
        """Hold a place for a request that is being prepared.

        Raises:
            Overloaded: as many requests wait or are promised as may.
        """
        if not self._places.may_take(scope):
            reason = self._places.refusal(scope, "requests would wait")
            raise self._overloaded(f"{reason} (--max-waiting)")
        self._places.take(scope)
        self._num_promised[scope] += 1

    def withdraw(self, scope: str = "") -> None:
        """Give up a promised place."""
        self._redeem(scope)
        self._places.give_back(scope)

    def join(self, sequence: Sequence) -> None:
        """Put a sequence on the place that was promised to its scope.

        Raises:
            Overloaded: its tokens are too many for now; the place is given up.
        """
        scope, num_tokens = sequence.job.scope, _num_tokens(sequence)
        if not self._may_wait(scope, num_tokens):
            self.withdraw(scope)
            reason = self._tokens.refusal(scope, "prompt tokens would wait", num_tokens)
            raise self._overloaded(f"{reason} (--max-waiting-tokens)")
        self._redeem(scope)
        self._tokens.take(scope, num_tokens)
        self._waiting[sequence.job.job_id] = sequence
        self._queue_of(sequence).join(sequence)

    def rejoin(self, sequence: Sequence) -> None:
        """Put a sequence that gave up its lane before all others of its scope and priority.

        It goes behind the head if that is another scope's: the lane was given up for it. No
        bound is asked: a lane was free for it, so the line grows by lanes at most.
        """
        self._count_back(sequence)
        self._queue_of(sequence).rejoin(sequence)

    def put_first(self, sequences: Iterable[Sequence]) -> None:
        """Put those that lost their lanes before all others of their priority, in this order.

        Nobody had to wait for them before, so nobody is overtaken; no bound is asked.
        """
        back = list(sequences)
        for sequence in back:
            self._count_back(sequence)
        self._foreground.put_first([one for one in back if not one.is_background])
        self._background.put_first([one for one in back if one.is_background])

    def head(self, *, without: Collection[str] = ()) -> Sequence | None:
        """Return whose turn it is; the same until somebody joins, leaves or is taken.

        Args:
            without: Scopes that are passed over this time. They still keep the background
                waiting: nobody overtakes who would not without them.
        """
        foreground = self._foreground.head(without=without)
        background = self._background.head(without=without)
        if background is not None and (self._is_due or self._foreground.head() is None):
            return background
        return foreground

    def take_head(self, *, without: Collection[str] = ()) -> Sequence:
        """Take the head off the line, to a lane."""
        sequence = self.head(without=without)
        assert sequence is not None, "nobody waits"
        is_due = self._is_due
        self._queue_of(sequence).take(sequence)
        self._forget(sequence)
        if not sequence.is_background:
            self._num_overtakes += self._background.head() is not None
        else:
            sequence.is_promoted = is_due
            self._num_overtakes = 0
        return sequence

    def leave(self, job_id: str) -> Sequence | None:
        """Take a sequence out of the line, wherever it stands; None when it does not wait."""
        sequence = self._waiting.get(job_id)
        if sequence is not None:
            self._queue_of(sequence).leave(sequence)
            self._forget(sequence)
        return sequence

    @property
    def _is_due(self) -> bool:
        return self._num_overtakes >= self._max_overtakes

    def _queue_of(self, sequence: Sequence) -> FairQueue:
        return self._background if sequence.is_background else self._foreground

    def _may_wait(self, scope: str, num_tokens: int) -> bool:
        """Say whether so many tokens may wait; one alone may pass the bound.

        It fits the pool, or the door had refused it. Who has a share is alone when no other
        of its scope waits: what others hold is no reason to refuse it.
        """
        tokens = self._tokens
        rivals = tokens.taken_by(scope) if tokens.share_of(scope) else tokens.num_taken
        return rivals == 0 or tokens.may_take(scope, num_tokens)

    def _count_back(self, sequence: Sequence) -> None:
        scope = sequence.job.scope
        self._places.take(scope)
        self._tokens.take(scope, _num_tokens(sequence))
        self._waiting[sequence.job.job_id] = sequence

    def _redeem(self, scope: str) -> None:
        assert self._num_promised[scope] > 0, f"no place was promised to {scope!r}"
        self._num_promised[scope] -= 1

    def _forget(self, sequence: Sequence) -> None:
        scope = sequence.job.scope
        del self._waiting[sequence.job.job_id]
        self._places.give_back(scope)
        self._tokens.give_back(scope, _num_tokens(sequence))
        if self._background.head() is None:
            self._num_overtakes = 0

    def _overloaded(self, message: str) -> Overloaded:
        return Overloaded(message, retry_after_s=self._settings.retry_after_s)


def _num_tokens(sequence: Sequence) -> int:
    return len(sequence.job.prompt_ids) + len(sequence.generated_ids)
