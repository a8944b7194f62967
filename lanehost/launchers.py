"""What torchrun, Slurm and LeaderWorkerSet tell of a process's place in the group; pure.

Laws: what the environment says and what an option says must agree, or both are named; what is
missing or no number is named. Nothing is guessed but this: ranks of one host meet on loopback.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lanehost.errors import StartupFailed

AUTO = "auto"
# gRPC of clients is at 50051.
DEFAULT_RANK_PORT = 50050
_LOOPBACK = "127.0.0.1"
# What marks each of them in the environment.
_MARKS = {
    "torchrun": ("RANK", "WORLD_SIZE"),
    "slurm": ("SLURM_PROCID",),
    "lws": ("LWS_LEADER_ADDRESS",),
}
LAUNCHERS = (AUTO, *_MARKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the options say; None where they say nothing."""

    launcher: str = AUTO
    rank: int | None = None
    tp: int | None = None
    host: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One process's place; `ranks_here` is how many ranks share its host, where that is told."""

    launcher: str
    rank: int
    world_size: int
    host: str
    port: int
    ranks_here: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What the environment says; `states_host` and `states_port` when it leaves no choice."""

    rank: tuple[str, int]
    world_size: tuple[str, int]
    host: tuple[str, str]
    states_host: bool
    port: tuple[str, int] | None = None
    ranks_here: int | None = None


def read_launch(environment: Mapping[str, str], asked: Asked) -> Launch:
    """Find this process's place in the group.

    Raises:
        StartupFailed: No launcher is there, or it tells too little, or an option contradicts it.
    """
    launcher = _choose(environment, asked.launcher)
    told = _READERS[launcher](_Variables(environment))
    _agree("--rank", asked.rank, *told.rank)
    _agree("--tp", asked.tp, *told.world_size)
    is_one_host = told.ranks_here == told.world_size[1]
    if told.states_host and not is_one_host:
        _agree("--master's host", asked.host, *told.host)
    port = asked.port or DEFAULT_RANK_PORT
    if told.port is not None:
        _agree("--master's port", asked.port, *told.port)
        port = told.port[1]
    return Launch(
        launcher=launcher,
        rank=told.rank[1],
        world_size=told.world_size[1],
        host=asked.host or (_LOOPBACK if is_one_host else told.host[1]),
        port=port,
        ranks_here=told.ranks_here,
    )


def _choose(environment: Mapping[str, str], asked: str) -> str:
    found = [name for name, marks in _MARKS.items() if all(mark in environment for mark in marks)]
    if asked != AUTO:
        return asked
    # torchrun may itself be started by one of the others, which then counts its nodes.
    if "torchrun" in found:
        return "torchrun"
    if len(found) == 1:
        return found[0]
    if found:
        raise StartupFailed(f"{' and '.join(found)} are both in the environment: give --launcher")
    marks = "; ".join(f"{name}: {', '.join(marks)}" for name, marks in _MARKS.items())
    raise StartupFailed(
        f"no launcher is in the environment ({marks}): use `lanehost serve --rank 0 --master "
        "HOST:PORT` and `lanehost follow --rank N --master HOST:PORT`"
    )


def _agree(option: str, asked: int | str | None, variable: str, told: int | str) -> None:
    if asked is not None and asked != told:
        raise StartupFailed(f"{option} is {asked}, {variable} is {told}: leave one of them out")


class _Variables:
    """The environment, read by name."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def text(self, *names: str) -> tuple[str, str]:
        """Give the first that is set, with its name."""
        for name in names:
            if value := self._environment.get(name, ""):
                return name, value
        raise StartupFailed(f"{' or '.join(names)} is missing in the environment")

    def number(self, *names: str, least: int = 0) -> tuple[str, int]:
        """Give the first that is set, with its name."""
        name, value = self.text(*names)
        if not (value.isascii() and value.isdecimal()) or int(value) < least:
            raise StartupFailed(f"{name} is {value!r}, it must be a number of {least} or more")
        return name, int(value)

    def has(self, name: str) -> bool:
        """Say whether it is set."""
        return bool(self._environment.get(name, ""))

    def is_true(self, name: str) -> bool:
        """Say whether it is set and says so."""
        return self._environment.get(name, "") == "True"


def _read_torchrun(variables: _Variables) -> _Told:
    here = variables.number("LOCAL_WORLD_SIZE")[1] if variables.has("LOCAL_WORLD_SIZE") else None
    # torchrun's own agent listens on that port: it says who is there, and not where to meet.
    is_taken = variables.is_true("TORCHELASTIC_USE_AGENT_STORE")
    return _Told(
        rank=variables.number("RANK"),
        world_size=variables.number("WORLD_SIZE", least=1),
        host=variables.text("MASTER_ADDR"),
        states_host=True,
        port=None if is_taken else variables.number("MASTER_PORT", least=1),
        ranks_here=here,
    )


def _read_slurm(variables: _Variables) -> _Told:
    name, nodes = variables.text("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    counts = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    here = None
    if any(map(variables.has, counts)):
        node = variables.number("SLURM_NODEID")[1]
        here = tasks_of_node(*variables.text(*counts), node)
    return _Told(
        rank=variables.number("SLURM_PROCID"),
        world_size=variables.number("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", least=1),
        host=(name, first_node(nodes)),
        # The list names nodes, not the network that ranks shall use.
        states_host=False,
        ranks_here=here,
    )


def _read_lws(variables: _Variables) -> _Told:
    return _Told(
        rank=variables.number("LWS_WORKER_INDEX"),
        world_size=variables.number("LWS_GROUP_SIZE", least=1),
        host=variables.text("LWS_LEADER_ADDRESS"),
        states_host=True,
        ranks_here=1,
    )


_READERS: dict[str, Callable[[_Variables], _Told]] = {
    "torchrun": _read_torchrun,
    "slurm": _read_slurm,
    "lws": _read_lws,
}


def first_node(nodes: str) -> str:
    """Give the first name of a list as Slurm writes it.

    >>> first_node("gpu[07-09,12],login"), first_node("a,b"), first_node("r[1-2]n[3,5]")
    ('gpu07', 'a', 'r1n3')
    """
    match = re.match(r"(?:[^\[,]|\[[^\]]*\])+", nodes)
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", match[0] if match else nodes)


def tasks_of_node(name: str, counts: str, node: int) -> int:
    """Give the number of tasks of a node, counted from 0, in a list as Slurm writes it.

    >>> tasks_of_node("SLURM_TASKS_PER_NODE", "2(x3),1", 3)
    1

    Raises:
        StartupFailed: The list is another, or too short.
    """
    seen = 0
    for part in counts.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            break
        seen += int(match[2] or 1)
        if node < seen:
            return int(match[1])
    raise StartupFailed(f"{name} is {counts!r}, it does not tell of node {node}")
