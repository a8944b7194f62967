"""Which ranks have fallen silent, stand still, or were stopped; pure.

Laws: time is counted in slices, and a slice that took longer counts as one, so that a pause of
the master is nobody's silence; who is lost is said once.

What counts as life: any word of the rank. Until it is in the group also that its process uses
the processor, because loading a library holds the interpreter, and with it the thread of the
heartbeat, for longer than any bound that would find a dead rank soon.
"""

from collections.abc import Callable
from dataclasses import dataclass

from lanehost.rank_group.events import LossCause

SLICE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LivenessLimits:
    """How long what may last; `start_s` is for ranks that are not in the group yet."""

    heartbeat_s: float
    stall_s: float
    start_s: float = 10.0
    stopped_s: float = 1.0


@dataclass(frozen=True, slots=True)
class ProcessSight:
    """What the machine says of a process."""

    is_stopped: bool
    cpu_ticks: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A rank that does not live as it should."""

    rank: int
    cause: LossCause
    reason: str


@dataclass(slots=True)
class _Watched:
    """What is known of one rank's life."""

    is_in_group: bool = False
    silent_s: float = 0.0
    stopped_s: float = 0.0
    still_s: float = 0.0
    cpu_ticks: int = -1
    beat: tuple[int, int] = (0, 0)
    # The heartbeat and the step that was owed when it last moved.
    mark: tuple[tuple[int, int], int | None] = ((0, 0), None)


class Liveness:
    """Hears of every word, and is asked at every slice."""

    def __init__(self, limits: LivenessLimits) -> None:
        """Watch nobody yet."""
        self._limits = limits
        self._watched: dict[int, _Watched] = {}

    def begin(self, rank: int) -> None:
        """Watch a rank from its first moment; one of that number was here before, or not."""
        self._watched[rank] = _Watched()

    def forget(self, rank: int) -> None:
        """Watch it no more."""
        self._watched.pop(rank, None)

    def put_in_group(self, rank: int) -> None:
        """From now on only its words count."""
        self._watched[rank].is_in_group = True

    def take_out_of_group(self, rank: int) -> None:
        """Be patient again."""
        if rank in self._watched:
            self._watched[rank].is_in_group = False

    def hear(self, rank: int) -> None:
        """Note that the rank said something."""
        if rank in self._watched:
            self._watched[rank].silent_s = 0.0

    def hear_beat(self, rank: int, *, step_id: int, num_stages: int) -> None:
        """Note a heartbeat, and how far it says its step is."""
        self.hear(rank)
        if rank in self._watched:
            self._watched[rank].beat = (step_id, num_stages)

    def look(
        self,
        elapsed_s: float,
        *,
        see: Callable[[int], ProcessSight | None],
        owed_step: Callable[[int], int | None],
    ) -> list[Finding]:
        """Count one slice; returns who does not live as it should.

        Args:
            elapsed_s: What the slice took; longer than a slice counts as one.
            see: The process of a rank, None when there is nothing to see.
            owed_step: The step that a rank is to answer next, None when it owes nothing.
        """
        slice_s = min(elapsed_s, SLICE_S)
        found = []
        for rank, watched in list(self._watched.items()):
            self._count(watched, slice_s, see(rank), owed_step(rank))
            finding = self._judge(rank, watched)
            if finding is not None:
                found.append(finding)
                watched.still_s = 0.0
                if finding.cause is not LossCause.STALLED:
                    self.forget(rank)
        return found

    def _count(
        self, watched: _Watched, slice_s: float, sight: ProcessSight | None, owed: int | None
    ) -> None:
        watched.silent_s += slice_s
        watched.stopped_s = watched.stopped_s + slice_s if sight and sight.is_stopped else 0.0
        if sight and sight.cpu_ticks != watched.cpu_ticks:
            watched.cpu_ticks = sight.cpu_ticks
            if not watched.is_in_group:
                watched.silent_s = 0.0
        mark = (watched.beat, owed)
        watched.still_s = watched.still_s + slice_s if mark == watched.mark and owed else 0.0
        watched.mark = mark

    def _judge(self, rank: int, watched: _Watched) -> Finding | None:
        limits = self._limits
        if _is_past(watched.stopped_s, limits.stopped_s):
            reason = f"rank {rank} was stopped by a signal"
            return Finding(rank, LossCause.STOPPED, reason)
        bound = limits.heartbeat_s if watched.is_in_group else limits.start_s
        if _is_past(watched.silent_s, bound):
            return Finding(rank, LossCause.SILENT, f"rank {rank} has said nothing for {bound:g} s")
        if _is_past(watched.still_s, limits.stall_s):
            step = watched.mark[1]
            reason = f"rank {rank} has not moved in step {step} for {limits.stall_s:g} s"
            return Finding(rank, LossCause.STALLED, reason)
        return None


def _is_past(have_s: float, limit_s: float) -> bool:
    # Half a slice less: sums of slices are not exact.
    return have_s > limit_s - SLICE_S / 2
