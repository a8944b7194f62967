"""`lanehost follow` and `lanehost launch`: ranks on several hosts (docs/launch.md)."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from lanehost.cli_hosts import HOSTS_OPTIONS, SPARE_OPTION, build_rank_port
from lanehost.cli_serve import (
    EMBEDDED,
    EXIT_CANNOT_START,
    SERVE_OPTIONS,
    find_model,
    start,
)
from lanehost.embedded import embedded_model_path
from lanehost.errors import StartupFailed
from lanehost.launchers import AUTO, DEFAULT_RANK_PORT, LAUNCHERS, Asked, read_launch
from lanehost.settings import FollowSettings

_MASTER_TIMEOUT_S = 300.0
_master_timeout = click.option(
    "--master-timeout",
    default=_MASTER_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="Most time without a master, at the start and later, before `follow` exits.",
)


def _with(options: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Give a command these options, in this order."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command(short_help="Run a rank of a server on another host.")
@click.option("--tp", type=int, required=True, help="Ranks of the whole group.")
@click.option(
    "--model",
    default=EMBEDDED,
    show_default=True,
    metavar="PATH|embedded",
    help="Where the master's model lies on this host.",
)
@_with(HOSTS_OPTIONS)
@_master_timeout
@_with((SPARE_OPTION,))
@click.option("--log-json", is_flag=True, help="Log one JSON object per line.")
def follow(**options: Any) -> None:
    """Hold one rank on this host for the master that `lanehost serve` is on another.

    It starts, watches and ends the rank as the master says, and dials a master that was
    restarted again.

    \b
    Examples:
      lanehost follow --tp 2 --rank 1 --master 10.0.0.1:50050 --rank-tls /etc/lanehost/tls

    \b
    Exit codes: 0 told to end, by SIGTERM or by a master that ends in order; 1 refused by the
    master, or cannot start; 2 wrong command line; 3 no master for --master-timeout, or the
    master has given the ranks up.
    """  # noqa: D301 - click wants the character itself
    # Late, so that the client commands do not load what runs ranks.
    from lanehost import following  # noqa: PLC0415

    sys.exit(start_following(options, run=following.run_follower))


@click.command(short_help="Serve or follow, as torchrun, Slurm or LeaderWorkerSet says.")
@click.option(
    "--launcher",
    type=click.Choice(LAUNCHERS),
    default=AUTO,
    show_default=True,
    help="Whose environment to read; `auto` takes the one that is there, torchrun first.",
)
@_with(SERVE_OPTIONS)
@_with(HOSTS_OPTIONS)
@_master_timeout
@click.pass_context
def launch(context: click.Context, /, **options: Any) -> None:
    """Run the same command line on every host: one serves, the others follow.

    Rank, number of ranks and master come from the environment of torchrun, Slurm (srun) or a
    Kubernetes LeaderWorkerSet. The options are those of `serve`: rank 0 takes them all, the
    others take what concerns their host. --rank, --tp and --master may be given too; what
    contradicts the environment is refused.

    \b
    Examples:
      torchrun --nnodes 2 ... --no-python -- lanehost launch --rank-tls DIR
      srun lanehost launch --model /models/m.gguf --rank-tls DIR
      lanehost launch --launcher lws --model /models/m.gguf --rank-tls DIR
    """  # noqa: D301 - click wants the character itself
    is_default = context.get_parameter_source("tp") is click.core.ParameterSource.DEFAULT
    asked = {**options, "tp": None if is_default else options["tp"]}
    placed = place(asked, os.environ)
    if placed["rank"] in (None, 0):
        from lanehost import master  # noqa: PLC0415 - late, as in `follow`

        sys.exit(start(serve_part(placed), run=master.run))
    from lanehost import following  # noqa: PLC0415 - late, as in `follow`

    sys.exit(start_following(placed, run=following.run_follower))


def place(options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Fill in what the launcher tells: rank, tp, master, ranks_here.

    Raises:
        click.UsageError: It tells too little, or contradicts an option.
    """
    host, port = options["master"] or (None, None)
    try:
        found = read_launch(
            environment,
            Asked(
                launcher=options["launcher"],
                rank=options["rank"],
                tp=options["tp"],
                host=host,
                port=port,
            ),
        )
    except StartupFailed as error:
        raise click.UsageError(str(error)) from error
    is_alone = found.world_size == 1
    return {
        **options,
        "tp": found.world_size,
        "rank": None if is_alone else found.rank,
        "master": None if is_alone else (found.host, found.port or DEFAULT_RANK_PORT),
        "ranks_here": found.ranks_here,
    }


def serve_part(options: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what only `follow` takes."""
    return {
        name: value for name, value in options.items() if name not in ("launcher", "master_timeout")
    }


def start_following(
    options: Mapping[str, Any],
    *,
    run: Callable[[FollowSettings], int],
    find_embedded: Callable[[], Path] = embedded_model_path,
) -> int:
    """Follow and return the exit code; says in one line why it cannot.

    Raises:
        click.UsageError: An option is wrong.
    """
    try:
        settings = _follow_settings(options, find_embedded)
        return run(settings)
    except StartupFailed as error:
        click.echo(f"lanehost: cannot follow: {error}", err=True)
        return EXIT_CANNOT_START


def _follow_settings(
    options: Mapping[str, Any], find_embedded: Callable[[], Path]
) -> FollowSettings:
    for name in ("rank", "master"):
        if options[name] is None:
            raise click.UsageError(f"--{name} is missing")
    model_path = find_model(options["model"], find_embedded)
    try:
        return FollowSettings(
            rank=options["rank"],
            tp=options["tp"],
            master=build_rank_port(options, ranks_here=options.get("ranks_here")),
            model_path=model_path,
            master_timeout_s=options["master_timeout"],
            log_json=options["log_json"],
            keeps_spare=options["spare_rank"] == "on",
        )
    except StartupFailed as error:
        raise click.UsageError(str(error)) from error
