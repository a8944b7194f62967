"""What is asked of a chaos run, and all that was seen of it: data, to be judged and told."""

from dataclasses import dataclass, field

from lanehost.chaos.health import HealthSeen
from lanehost.chaos.resources import Holding
from lanehost.chaos.served import Said
from lanehost.chaos.streams import Ending
from lanehost.chaos.table import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosRun:
    """What is asked for; the run ends after `duration_s` or `max_faults`, whichever is first."""

    serve_args: tuple[str, ...]
    tp: int
    faults: tuple[Fault, ...]
    duration_s: float
    max_faults: int | None
    num_streams: int
    num_asked: int
    pause_s: float
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One fault that was done, and where its server's log was then."""

    at_s: float
    fault: Fault
    rank: int
    was_serving: bool


@dataclass(slots=True, kw_only=True)
class Seen:
    """All that was seen of a run."""

    started_s: float = 0.0
    loaded_s: float = 0.0
    ended_s: float = 0.0
    done: list[Done] = field(default_factory=list[Done])
    health: HealthSeen = field(default_factory=HealthSeen)
    said: list[Said] = field(default_factory=list[Said])
    endings: list[Ending] = field(default_factory=list[Ending])
    arrivals_s: list[float] = field(default_factory=list[float])
    samples: list[tuple[float, Holding]] = field(default_factory=list[tuple[float, Holding]])
    num_sent: int = 0
    num_never_ended: int = 0
    never_served_again: bool = False
    num_equal_after: int = 0
    num_asked_after: int = 0
    before: Holding | None = None
    after: Holding | None = None
    exit_code: int | None = None
    pids_left: list[int] = field(default_factory=list[int])
    shared_left: frozenset[str] = frozenset()
