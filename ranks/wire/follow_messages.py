"""What an agent and the master say to each other, as plain data; `follow_codec` has the wire.

An agent (`lanehost follow`) says Join, and then does what it is told: it holds the process of
one rank on its host, in the master's place. Each process is one life of the rank, with a number
that the master gives: what is said of a former life is dropped.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Who follows; `build` is the version of the package.

    `node_id` tells an agent that dials again from a second one of the same rank, `host` is a
    name for people, `model_path` is where the model lies on that host.
    """

    rank: int
    world_size: int
    pid: int
    build: str
    node_id: str
    host: str
    model_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpawned:
    """The process was started."""

    life: int
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildNotSpawned:
    """The process cannot be started."""

    life: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildExited:
    """The process is gone; `exit_code` is negative for a signal."""

    life: int
    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSight:
    """How the process looks from outside; told when that has changed."""

    life: int
    is_stopped: bool
    cpu_ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnChild:
    """Start a process for the rank; `token` is for its Hello."""

    life: int
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopChild:
    """End the process: TERM, and KILL after `timeout_s`; 0 begins with KILL."""

    life: int
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Dismiss:
    """The agent is not needed any more, or is refused; `reason` is for the operator."""

    reason: str
    is_failure: bool


AgentMessage = Join | ChildSpawned | ChildNotSpawned | ChildExited | ChildSight
FollowOrder = SpawnChild | StopChild | Dismiss
