"""The streams that a journal knows: those that are open, and replies that ended a while ago. Pure.

The same moves make the state of a master that runs and that of one that reads its files anew.

Laws: tokens of a stream stand without a gap, from its first; what follows a gap is given up, and
what is said of a stream that is not known changes nothing; ended replies are bounded in number
and in age, and have no pixels.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from lanehost.job import Failed, Finished
from lanehost.journal.records import Accepted, Closed, Drawn, Ended, Note, Ready

MAX_KEPT = 1024
KEPT_S = 600.0


@dataclass(slots=True, eq=False, kw_only=True)
class KnownStream:
    """One stream; `ended` is its terminal event, at a time of the world.

    A reply that failed is known as long as its master lives.
    """

    accepted: Accepted
    token_ids: list[int] = field(default_factory=list[int])
    num_recoveries: int = 0
    ended: Finished | Failed | None = None
    ended_at_s: float = 0.0

    def __repr__(self) -> str:
        state = "open" if self.ended is None else "ended"
        return f"<KnownStream {self.accepted.job_id} {state} {len(self.token_ids)} tokens>"

    def records(self) -> Iterator[Note]:
        """Yield all that is known of it, as records."""
        number = self.accepted.number
        yield replace(self.accepted, num_recoveries=self.num_recoveries)
        if self.token_ids:
            yield Drawn(runs=((number, 0, tuple(self.token_ids)),))
        if isinstance(self.ended, Finished):
            yield Ended(number=number, at_s=self.ended_at_s, finished=self.ended)


class Streams:
    """All known streams, in the order in which they were accepted; ended ones as they ended."""

    def __init__(self, *, max_kept: int = MAX_KEPT, kept_s: float = KEPT_S) -> None:
        """Begin with none.

        Args:
            max_kept: The most ended replies.
            kept_s: How long each.
        """
        self._max_kept = max_kept
        self._kept_s = kept_s
        self._open: dict[int, KnownStream] = {}
        self._kept: dict[int, KnownStream] = {}
        self._by_job: dict[str, KnownStream] = {}
        self.is_ready = False
        self.is_closed = False
        self.num_given_up = 0

    def __repr__(self) -> str:
        return f"<Streams {len(self._open)} open, {len(self._kept)} kept>"

    @property
    def open(self) -> tuple[KnownStream, ...]:
        """Those that have not ended, as they were accepted."""
        return tuple(self._open.values())

    @property
    def kept(self) -> tuple[KnownStream, ...]:
        """Those that ended, as they ended."""
        return tuple(self._kept.values())

    @property
    def num_open(self) -> int:
        """How many have not ended."""
        return len(self._open)

    @property
    def num_kept(self) -> int:
        """How many have ended and are still known."""
        return len(self._kept)

    @property
    def max_number(self) -> int:
        """The greatest number that stands for one; 0 when there is none."""
        return max((*self._open, *self._kept), default=0)

    def find(self, job_id: str) -> KnownStream | None:
        """Return the stream of a job."""
        return self._by_job.get(job_id)

    def apply(self, note: Note) -> None:
        """Take a record of a file; what does not hang together with those before is given up."""
        match note:
            case Accepted():
                self.accept(note)
            case Drawn(runs=runs):
                for number, index, token_ids in runs:
                    self._draw(number, index, token_ids)
            case Ended(number=number, at_s=at_s, finished=finished):
                self._end(number, finished, at_s)
            case Ready():
                self.is_ready = True
            case Closed():
                self.is_closed = True

    def accept(self, accepted: Accepted) -> KnownStream | None:
        """Know one more; None, and nothing changes, if its number or its id is known."""
        is_known = accepted.number in self._open or accepted.number in self._kept
        if is_known or accepted.job_id in self._by_job:
            self.num_given_up += 1
            return None
        stream = KnownStream(accepted=accepted, num_recoveries=accepted.num_recoveries)
        self._open[accepted.number] = self._by_job[accepted.job_id] = stream
        return stream

    def end(self, job_id: str, event: Finished | Failed, at_s: float) -> None:
        """Keep a reply that has ended, and forget those that were kept longest."""
        stream = self._by_job[job_id]
        del self._open[stream.accepted.number]
        stream.ended, stream.ended_at_s = event, at_s
        # Nothing of it is computed again, and pixels are large.
        stream.accepted = replace(stream.accepted, images=())
        self._kept[stream.accepted.number] = stream
        self.forget_old(at_s)

    def forget(self, job_id: str) -> None:
        """Know one no more."""
        stream = self._by_job.pop(job_id)
        self._open.pop(stream.accepted.number, None)
        self._kept.pop(stream.accepted.number, None)

    def forget_old(self, now_s: float) -> None:
        """Forget ended replies that are too many or too old."""
        for stream in self.kept:
            is_old = now_s - stream.ended_at_s > self._kept_s
            if not is_old and len(self._kept) <= self._max_kept:
                break
            self.forget(stream.accepted.job_id)

    def forget_kept(self) -> None:
        """Forget all ended replies, for want of room."""
        for stream in self.kept:
            self.forget(stream.accepted.job_id)

    def records(self) -> Iterator[Note]:
        """Yield all that is known, as records."""
        for stream in (*self._kept.values(), *self._open.values()):
            if not isinstance(stream.ended, Failed):
                yield from stream.records()

    def _draw(self, number: int, index: int, token_ids: tuple[int, ...]) -> None:
        stream = self._open.get(number)
        if stream is None or index != len(stream.token_ids):
            self.num_given_up += 1
            return
        if index + len(token_ids) > stream.accepted.max_tokens:
            self.num_given_up += 1
            return
        stream.token_ids.extend(token_ids)
        if self.is_ready:
            stream.num_recoveries = 0

    def _end(self, number: int, finished: Finished | None, at_s: float) -> None:
        stream = self._open.get(number)
        if stream is None:
            self.num_given_up += 1
        elif finished is None:
            self.forget(stream.accepted.job_id)
        elif finished.usage.completion_tokens != len(stream.token_ids):
            # Some of its tokens are lost: it stays open, and they are drawn again.
            self.num_given_up += 1
        else:
            self.end(stream.accepted.job_id, finished, at_s)
