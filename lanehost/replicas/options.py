"""What the application of the replicas is given, checked once, before anything starts.

    replicas      servers, each with a placement group of its own
    options       what each is started with: options of `lanehost serve`, as on a command line
    load_factor   how many times the mean of open requests a replica may have …
    spill_above   … beyond this many
    head_chars    characters of a prompt that decide where it goes
    max_queued    requests that may wait for a replica, at this door

Laws: an option of `lanehost serve` means here what it means there, and a wrong one is refused
in the same words; those that the application decides itself are refused by name.
"""

import math
import shlex
from dataclasses import dataclass
from pathlib import Path

import click
from pydantic import BaseModel, ConfigDict, Field

from lanehost.cli import serve
from lanehost.cli_serve import EMBEDDED, start
from lanehost.errors import StartupFailed
from lanehost.replicas.affinity import MAX_LOAD_FACTOR, MAX_SPILL_ABOVE, LoadBound
from lanehost.replicas.head import DEFAULT_HEAD_CHARS, MAX_HEAD_CHARS
from lanehost.settings import ServeSettings

MAX_REPLICAS = 256
# Behind the server's own bound on loading: what comes before and after.
_START_MARGIN_S = 30.0
# What ranks may take to end when the drain is over, before the server is killed.
_STOP_MARGIN_S = 10.0
# Behind that: that Ray does not kill what is about to end.
_SHUTDOWN_MARGIN_S = 5.0
_FIXED = (
    *("--host", "127.0.0.1", "--port", "0", "--http-port", "0"),
    # Ray sends nothing any more before it ends a server.
    *("--drain-grace", "0"),
)
_OWNED = {
    "host": "servers listen on loopback, and the door of the replicas is Ray's",
    "port": "each server takes free ports",
    "http_port": "each server takes free ports",
    "drain_grace": "Ray stops to send before a server is told to end",
    "master": "a replica is of one host",
    "record": "the trails of all servers would be in one folder",
}


class ReplicasOptions(BaseModel):
    """The arguments of the application."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    replicas: int = Field(default=2, ge=1, le=MAX_REPLICAS)
    options: str = ""
    load_factor: float = Field(default=LoadBound().load_factor, ge=1, le=MAX_LOAD_FACTOR)
    spill_above: int = Field(default=LoadBound().spill_above, ge=1, le=MAX_SPILL_ABOVE)
    head_chars: int = Field(default=DEFAULT_HEAD_CHARS, ge=1, le=MAX_HEAD_CHARS)
    max_queued: int = Field(default=1024, ge=1, le=1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """What one server is started with, and what it needs."""

    arguments: tuple[str, ...]
    num_cpus: int
    num_gpus: int
    max_streams: int
    ready_timeout_s: float
    drain_timeout_s: float
    keys_path: Path | None

    @property
    def end_timeout_s(self) -> float:
        """How long the server may take to end once it is told to."""
        return self.drain_timeout_s + _STOP_MARGIN_S

    @property
    def shutdown_timeout_s(self) -> float:
        """How long a replica may take to end: open requests, then the server's own end."""
        return self.drain_timeout_s + self.end_timeout_s + _SHUTDOWN_MARGIN_S


def plan_server(options: str) -> ServerPlan:
    """Read options of `lanehost serve`.

    Raises:
        StartupFailed: one is wrong, or is not the operator's to choose here.
    """
    try:
        words = tuple(shlex.split(options))
        context = serve.make_context("serve", list(words))  # which empties what it is given
    except (click.ClickException, ValueError) as error:
        raise StartupFailed(f"options: {_said(error)}") from error
    for name, reason in _OWNED.items():
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise StartupFailed(
                f"options: --{name.replace('_', '-')} is not for replicas: {reason}"
            )
    settings = _settings(dict(context.params))
    ranks = settings.ranks
    if ranks.num_threads is None:
        raise StartupFailed(
            "options: --threads is missing: a replica has as many CPUs as its ranks have threads"
        )
    return ServerPlan(
        arguments=("serve", *words, *_FIXED),
        num_cpus=ranks.tp * ranks.num_threads,
        num_gpus=ranks.tp if ranks.device == "cuda" else 0,
        max_streams=settings.line.max_streams,
        ready_timeout_s=math.ceil(ranks.load_timeout_s + _START_MARGIN_S),
        drain_timeout_s=settings.drain_timeout_s,
        keys_path=context.params["keys"],
    )


def _settings(params: dict[str, object]) -> ServeSettings:
    """Check the values by the settings themselves.

    The files of the model and of the keys need not be on this machine: they are read where a
    server starts.
    """
    kept: list[ServeSettings] = []

    def keep(settings: ServeSettings) -> int:
        kept.append(settings)
        return 0

    unread = {**params, "model": EMBEDDED, "keys": None}
    try:
        start(unread, run=keep, find_embedded=lambda: Path(str(params["model"])))
    except click.ClickException as error:
        raise StartupFailed(f"options: {_said(error)}") from error
    return kept[0]


def _said(error: Exception) -> str:
    return error.format_message() if isinstance(error, click.ClickException) else str(error)
