"""What supervision hears, and what it decides: plain data."""

from dataclasses import dataclass
from enum import Enum


class LossCause(Enum):
    """Why a rank, or an epoch, was lost."""

    EXITED = "exited"
    DISCONNECTED = "disconnected"
    SILENT = "silent"
    STOPPED = "stopped"
    STALLED = "stalled"
    BROKEN = "broken"
    OUT_OF_STEP = "out_of_step"
    STUCK = "stuck"
    DISAGREES = "disagrees"
    LATE = "late"


class Timer(Enum):
    """What the machine waits for; each runs at most once at a time."""

    LEAVE = "leave"
    BACK_OFF = "back off"
    RECOVER = "recover"
    NEW_ROW = "new row"


@dataclass(frozen=True, slots=True)
class SaidHello:
    """A rank has dialled."""

    rank: int


@dataclass(frozen=True, slots=True)
class SaidLoaded:
    """A rank has its part of the model, and it is what it should be."""

    rank: int


@dataclass(frozen=True, slots=True)
class SaidReady:
    """A rank is in the group of this epoch."""

    rank: int
    epoch: int


@dataclass(frozen=True, slots=True)
class SaidLeft:
    """A rank is out of the group of this epoch."""

    rank: int
    epoch: int


@dataclass(frozen=True, slots=True)
class RankLost:
    """A rank is of no use any more, whether its process still runs or not."""

    rank: int
    cause: LossCause
    reason: str


@dataclass(frozen=True, slots=True)
class EpochLost:
    """The group cannot go on, and no rank is known to be lost; `rank` is who is suspected.

    Epoch 0 is the time before the first one.
    """

    epoch: int
    cause: LossCause
    reason: str
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Exited:
    """A rank's process has ended."""

    rank: int
    reason: str


@dataclass(frozen=True, slots=True)
class KillFailed:
    """A rank's process is still there: what it holds is not free, and cannot be had again."""

    rank: int


@dataclass(frozen=True, slots=True)
class StepFinished:
    """The group has run a step."""


@dataclass(frozen=True, slots=True)
class TimerEnded:
    """A timer that was asked for has run out."""

    timer: Timer


Word = SaidHello | SaidLoaded | SaidReady | SaidLeft
Event = Word | RankLost | EpochLost | Exited | KillFailed | StepFinished | TimerEnded


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a process for this number, and expect its call."""

    rank: int


@dataclass(frozen=True, slots=True)
class NoteLost:
    """A rank is lost: for the log and those who count."""

    rank: int
    cause: LossCause
    reason: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End the process at once; `Exited` says that it is gone."""

    rank: int


@dataclass(frozen=True, slots=True)
class TellLoad:
    """Tell a rank what to load."""

    rank: int


@dataclass(frozen=True, slots=True)
class TellForm:
    """Tell all ranks to form the group of this epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class TellLeave:
    """Tell a rank that this epoch is over."""

    rank: int
    epoch: int


@dataclass(frozen=True, slots=True)
class EndEpoch:
    """An epoch that may have served is over: whoever waits for it must hear."""

    epoch: int
    cause: LossCause
    reason: str
    rank: int | None


@dataclass(frozen=True, slots=True)
class Serve:
    """All are ready: give the group of this epoch to the engine."""

    epoch: int


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Start a timer, in place of one that runs; `delay_s` None takes the operator's load time."""

    timer: Timer
    delay_s: float | None


@dataclass(frozen=True, slots=True)
class ClearTimer:
    """Forget a timer."""

    timer: Timer


@dataclass(frozen=True, slots=True)
class FailStart:
    """The first epoch cannot be: say why, and end."""

    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No more epochs: say why, and end."""

    reason: str
    rank: int | None


Decision = (
    Spawn
    | NoteLost
    | Kill
    | TellLoad
    | TellForm
    | TellLeave
    | EndEpoch
    | Serve
    | SetTimer
    | ClearTimer
    | FailStart
    | GiveUp
)
