"""Try many cells of the table, one after the other, and say how each went.

Cells that leave a server running share one; whatever ends a server, or is of its start, has one
of its own. A cell that cannot be is told with its reason.
"""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from lanehost.chaos.cells import needs_own_server, try_cell, try_running
from lanehost.chaos.rig import Rig, Setup, rigged
from lanehost.chaos.table import Fault, Impossible, Phase, cell
from lanehost.client_errors import ClientError

Pair = tuple[Fault, Phase]
_ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One cell: the laws that were broken, or why it cannot be."""

    fault: Fault
    phase: Phase
    broken: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def line(self) -> str:
        """How it went, in a line."""
        told = f"cannot be: {self.reason}" if self.reason else "; ".join(self.broken) or "held"
        return f"{self.fault.value:12}{self.phase.value:12}{told}"


def pairs_of(words: str) -> list[Pair]:
    """Read `FAULT/PHASE` with commas between; `*` is any.

    Raises:
        ValueError: A word is none; says which.
    """
    pairs: list[Pair] = []
    for word in words.split(","):
        fault_name, _, phase_name = word.partition("/")
        faults = [fault for fault in Fault if fault_name in (_ANY, fault.value)]
        phases = [phase for phase in Phase if phase_name in (_ANY, phase.value)]
        if not faults or not phases:
            raise ValueError(f"{word!r} is not FAULT/PHASE, as in kill/decode or */idle")
        pairs += [(fault, phase) for phase in phases for fault in faults]
    return list(dict.fromkeys(pairs))


async def tour(setup: Setup, pairs: Iterable[Pair]) -> AsyncIterator[Tried]:
    """Try cells; yields each as it is done.

    Raises:
        StartupFailed: A server did not start.
    """
    shared: list[Pair] = []
    alone: list[Pair] = []
    for fault, phase in pairs:
        if isinstance(found := cell(fault, phase), Impossible):
            yield Tried(fault=fault, phase=phase, reason=found.reason)
        else:
            (alone if needs_own_server(fault, phase) else shared).append((fault, phase))
    if shared:
        async with rigged(setup) as rig:
            for pair in shared:
                yield await _try(pair, rig)
    for pair in alone:
        yield await _try(pair, setup)


async def _try(pair: Pair, where: Rig | Setup) -> Tried:
    """Try a cell; one that does not come to an end is broken too, and the others are tried."""
    fault, phase = pair
    try:
        if isinstance(where, Rig):
            broken = await try_running(where, fault, phase)
        else:
            broken = await try_cell(fault, phase, where)
    except (TimeoutError, ClientError) as failed:
        broken = [f"it was not tried to the end: {type(failed).__name__} {failed}".rstrip()]
    return Tried(fault=fault, phase=phase, broken=tuple(broken))
