"""The waiting line: bounded in requests and in tokens, first come first served.

Laws: a full line refuses at once and keeps nothing; what was refused leaves no trace;
a place is held from the moment of the promise, so that work done before a request is
ready (rendering, tokenizing) is bounded by the same line.
"""

from collections import OrderedDict

from lanehost.errors import Overloaded
from lanehost.lanes.sequence import Sequence
from lanehost.settings import LineSettings


class Line:
    """Sequences that wait for a lane, and places promised to requests that are being prepared.

    Owned by the event loop: the door adds, the engine takes.
    """

    def __init__(self, settings: LineSettings) -> None:
        """Begin with an empty line under the given bounds."""
        self._settings = settings
        self._waiting: OrderedDict[str, Sequence] = OrderedDict()
        self._num_promised = 0
        self._num_tokens = 0

    def __repr__(self) -> str:
        return f"<Line {len(self._waiting)} jobs, {self._num_promised} promised>"

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def num_tokens(self) -> int:
        """Prompt tokens that wait."""
        return self._num_tokens

    def promise(self) -> None:
        """Hold a place for a request that is being prepared.

        Raises:
            Overloaded: as many requests wait or are promised as may.
        """
        limit = self._settings.max_waiting
        have = len(self._waiting) + self._num_promised
        if have >= limit:
            raise Overloaded(
                f"{have} requests wait, limit {limit} (--max-waiting)",
                retry_after_s=self._settings.retry_after_s,
            )
        self._num_promised += 1

    def withdraw(self) -> None:
        """Give up a promised place."""
        assert self._num_promised > 0, "no place was promised"
        self._num_promised -= 1

    def join(self, sequence: Sequence) -> None:
        """Put a sequence on its promised place, at the end of the line.

        Raises:
            Overloaded: its tokens are too many for now; the place is given up.
        """
        self.withdraw()
        limit = self._settings.max_waiting_tokens
        have = self._num_tokens + len(sequence.token_ids)
        # One alone may pass the bound: it fits the pool, or the door had refused it.
        if self._waiting and have > limit:
            raise Overloaded(
                f"{have} prompt tokens would wait, limit {limit} (--max-waiting-tokens)",
                retry_after_s=self._settings.retry_after_s,
            )
        self._add(sequence)

    def rejoin(self, sequence: Sequence) -> None:
        """Put a sequence that gave up its lane at the head: it was accepted before all others.

        No bound is asked: a lane was free for it, so the line grows by lanes at most.
        """
        self._add(sequence)
        self._waiting.move_to_end(sequence.job.job_id, last=False)

    def head(self) -> Sequence | None:
        """Return the sequence whose turn it is, without taking it."""
        return next(iter(self._waiting.values()), None)

    def take(self, job_id: str) -> Sequence | None:
        """Take a sequence out of the line, wherever it stands; None when it does not wait."""
        sequence = self._waiting.pop(job_id, None)
        if sequence is not None:
            self._num_tokens -= len(sequence.token_ids)
        return sequence

    def _add(self, sequence: Sequence) -> None:
        self._waiting[sequence.job.job_id] = sequence
        self._num_tokens += len(sequence.token_ids)
