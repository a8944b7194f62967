"""Run one in N of the replies that hit on disk again, cold, and compare (`--cache-self-check`).

A check is a job like any other: in the background, of the same scope, with the same seed. It takes
nothing from any tier and leaves nothing on disk; nobody reads it. It begins when the reply has
ended, so no reply waits for it.

Laws: one check at a time; what differs is counted and logged, never with a word of it, and all
that the prompt and the reply have in memory and on disk is forgotten.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from lanehost.admission.line import Line
from lanehost.engine.disk import EngineDisk
from lanehost.engine.inbox import Arrived, Inbox
from lanehost.engine.observer import NoObserver
from lanehost.engine.reply import Reply
from lanehost.engine.stops import StopRules
from lanehost.engine.stream import UnreadStream
from lanehost.engine.ticket import Ticket
from lanehost.errors import Overloaded
from lanehost.job import DiskUse, Failed, Finished, Job, Priority, StopParams
from lanehost.lanes.sequence import Sequence as LaneSequence

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Check:
    """A check that runs: of which job, and what that drew."""

    job: Job
    token_ids: tuple[int, ...]


class _NoText:
    """Implements `DetokenizerLike`: nobody reads a check."""

    def push(self, token_id: int) -> str:
        """Return nothing."""
        del token_id
        return ""

    def flush(self) -> str:
        """Return nothing."""
        return ""


class SelfCheck(NoObserver):
    """Implements `lanehost.engine.observer.EngineObserver`."""

    def __init__(
        self,
        every: int,
        disk: EngineDisk,
        *,
        line: Line,
        inbox: Inbox,
        clock: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """Begin with nothing seen.

        Args:
            every: Of so many hits one is checked.
            disk: Whose hits.
            line: Where checks wait.
            inbox: How the engine is told of them.
            clock: Seconds that only rise, the engine's clock.
            call_soon: Has something called between two turns of the engine.
        """
        self._every = every
        self._disk = disk
        self._line, self._inbox, self._clock = line, inbox, clock
        self._call_soon = call_soon
        self._open: dict[str, Job] = {}
        self._num_hits = 0
        self._check: _Check | None = None

    def __repr__(self) -> str:
        return f"<SelfCheck one in {self._every} of {self._num_hits} hits>"

    def job_arrived(self, job: Job) -> None:
        """Remember a job until it ends."""
        self._open[job.job_id] = job

    def job_ended(self, job_id: str, event: Finished | Failed, token_ids: Sequence[int]) -> None:
        """Judge a check that has ended, or check a job that has."""
        job = self._open.pop(job_id)
        if self._check is not None and job is self._check.job:
            check, self._check = self._check, None
            if isinstance(event, Finished):
                self._judge(check, tuple(token_ids))
        elif isinstance(event, Finished) and event.usage.disk_cached_tokens and token_ids:
            self._num_hits += 1
            if self._num_hits % self._every == 0 and self._check is None:
                self._check = _Check(_cold(job, len(token_ids)), tuple(token_ids))
                # Not now: the engine looks at the line in this very turn, and knows no ticket yet.
                self._call_soon(self._begin)

    def _begin(self) -> None:
        check = self._check
        if check is None or self._inbox.is_closed:
            return
        job = replace(check.job, arrived_s=self._clock())
        self._check = replace(check, job=job)
        seat = LaneSequence(job)
        try:
            self._line.promise(job.scope)
            self._line.join(seat)
        except Overloaded:
            self._check = None
            return
        stops = StopRules(frozenset(), StopParams(ignore_eos=True), max_tokens=job.max_tokens)
        ticket = Ticket(
            sequence=seat, reply=Reply(_NoText(), stops), stream=UnreadStream(job.job_id)
        )
        self._inbox.put(Arrived(ticket))

    def _judge(self, check: _Check, cold_ids: tuple[int, ...]) -> None:
        counters = self._disk.tier.counters
        counters.checks += 1
        if cold_ids == check.token_ids:
            return
        counters.differences += 1
        pairs = zip(cold_ids, check.token_ids, strict=False)
        at = next((at for at, (cold, hit) in enumerate(pairs) if cold != hit), len(cold_ids))
        log.error("disk_cache_differs", job_id=check.job.job_id, first_token=at)
        self._disk.distrust(check.job.scope, (*check.job.identity_ids, *check.token_ids))


def _cold(job: Job, num_tokens: int) -> Job:
    """Return the job that draws so many tokens of a reply again, with nothing from any tier."""
    return replace(
        job,
        job_id=f"{job.job_id}-check",
        max_tokens=num_tokens,
        deadline_s=None,
        label="",
        priority=Priority.BACKGROUND,
        marks=(),
        disk_use=DiskUse.OFF,
        is_cold=True,
    )
