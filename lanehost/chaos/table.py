"""Faults by phases: what must be seen for each, or why it cannot be; pure.

The one table of the chaos kit: `lanehost chaos` and tests/chaos both go by it.
"""

from dataclasses import dataclass
from enum import Enum


class Fault(Enum):
    """What is done to a server."""

    OOM = "oom"
    NAN = "nan"
    SHAPE = "shape"
    RAISE = "raise"
    STUCK = "stuck"
    STOP = "stop"
    KILL = "kill"
    PARTITION = "partition"
    POISON = "poison"
    KILL_MASTER = "kill-master"
    TERM = "term"


class Phase(Enum):
    """What the server is doing meanwhile; the first three are of its start."""

    SPAWN = "spawn"
    LOAD = "load"
    RENDEZVOUS = "rendezvous"
    WARM_UP = "warm-up"
    IDLE = "idle"
    PREFILL = "prefill"
    PASS = "pass"  # noqa: S105 - of prompts
    DECODE = "decode"
    DRAIN = "drain"


class Law(Enum):
    """What must be seen."""

    START_FAILS = "the server exits with 1, and nothing is left of it"
    GOES_ON = "every reply is the undisturbed one, and no rank is lost"
    ONE_FAILED = "a request whose step ran alone ends with INTERNAL, all others are undisturbed"
    NEW_EPOCH = "every reply is the undisturbed one, health dips, the other rank keeps its process"
    ONE_CORRUPT = "one reply ends with DATA_LOSS, all others are the undisturbed ones"
    ONE_ABORTED = "the request that kills ends with ABORTED, all others are the undisturbed ones"
    ALL_GONE = "no rank is left after two seconds, and the same ports serve again at once"
    DRAINS = "health dips, what is open is finished, the exit is 0"
    ENDS = "the server exits at once, and nothing is left of it"


@dataclass(frozen=True, slots=True)
class Impossible:
    """A cell that cannot be."""

    reason: str


Cell = Law | Impossible
START = (Phase.SPAWN, Phase.LOAD, Phase.RENDEZVOUS)
# A rank sees it coming in its own code, which the kit makes fail there.
FROM_INSIDE = (Fault.OOM, Fault.NAN, Fault.SHAPE, Fault.RAISE, Fault.STUCK, Fault.PARTITION)
# What a run at random times draws from, beside those that end the server.
AT_RANDOM = (
    Fault.KILL, Fault.STOP, Fault.PARTITION, Fault.OOM, Fault.NAN, Fault.SHAPE, Fault.RAISE,
    Fault.STUCK,
)  # fmt: skip
_NO_CODE = Impossible("no code of the rank runs yet: as stop or kill")
_NO_STREAM = Impossible("the rank has no stream yet that could be cut")
_NO_STEP = Impossible("no step runs")
_NO_DRAW = Impossible("a request of no tokens draws from no logits")
_NOT_AGAIN = Impossible("a request that kills does so from its prompt on: as prefill")
_IN_STEP = {
    Fault.OOM: Law.GOES_ON,
    Fault.NAN: Law.ONE_CORRUPT,
    Fault.SHAPE: Law.NEW_EPOCH,
    Fault.RAISE: Law.NEW_EPOCH,
    Fault.STUCK: Law.NEW_EPOCH,
    Fault.POISON: Law.ONE_ABORTED,
}
_ODD: dict[tuple[Fault, Phase], Cell] = {
    (Fault.NAN, Phase.WARM_UP): _NO_DRAW,
    (Fault.SHAPE, Phase.WARM_UP): _NO_DRAW,
    (Fault.OOM, Phase.WARM_UP): Law.ONE_FAILED,
    (Fault.OOM, Phase.PREFILL): Law.ONE_FAILED,
}
_FROM_OUTSIDE = (Fault.STOP, Fault.KILL, Fault.PARTITION)


def cell(fault: Fault, phase: Phase) -> Cell:  # noqa: PLR0911 - a table
    """Say what must be seen when this fault comes in this phase."""
    if fault is Fault.KILL_MASTER:
        return Law.ALL_GONE
    if fault is Fault.TERM:
        return Law.ENDS if phase in START or phase is Phase.DRAIN else Law.DRAINS
    if phase in START:
        return _at_start(fault, phase)
    if fault in _FROM_OUTSIDE:
        return Law.NEW_EPOCH
    if phase is Phase.IDLE:
        return _NO_STEP
    if fault is Fault.POISON and phase is not Phase.PREFILL:
        return _NOT_AGAIN
    return _ODD.get((fault, phase), _IN_STEP[fault])


def _at_start(fault: Fault, phase: Phase) -> Cell:
    if fault in (Fault.NAN, Fault.SHAPE, Fault.POISON):
        return _NO_STEP
    if phase is Phase.SPAWN and fault is Fault.PARTITION:
        return _NO_STREAM
    if phase is Phase.SPAWN and fault in FROM_INSIDE:
        return _NO_CODE
    return Law.START_FAILS
