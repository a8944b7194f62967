"""`lanehost replay`: run a trail again, and name the first step that differs.

Exit codes: 0 all is equal, 1 something differs, 2 the trail cannot be read or cannot be
replayed here, or the command line is wrong.
"""

import sys
from pathlib import Path

import click

from lanehost.errors import RankGroupLost, StartupFailed
from lanehost.settings import MAX_TP

_EXIT_DIFFERS = 1
_EXIT_CANNOT = 2


@click.command(short_help="Run a recorded trail again and compare it.")
@click.argument("trail", type=click.Path(path_type=Path), metavar="TRAIL")
@click.option(
    "--against",
    type=click.Choice(["fake", "ranks"]),
    default="ranks",
    show_default=True,
    help="`ranks` runs the model again; `fake` checks plans and results by the rules alone.",
)
@click.option(
    "--request",
    "job_id",
    metavar="ID",
    help="Replay this request alone, on the ranks; ID as in the log and in x-request-id.",
)
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    help="Where the model is now; default: where it was.",
)
@click.option(
    "--tp", type=click.IntRange(1, MAX_TP), help="Ranks that share the model; default: as recorded."
)
def replay(
    trail: Path, against: str, job_id: str | None, model: Path | None, tp: int | None
) -> None:
    """Run a trail of `lanehost serve --record` again and compare every step.

    TRAIL is the first file of a run, or a folder that holds one run.

    \b
    Examples:
      lanehost replay ./trails --against fake
      lanehost replay ./trails/20250101T120000Z-1a2b.000001.trail
      lanehost replay ./trails --request 3f9c-7

    \b
    Exit codes: 0 all is equal, 1 something differs (the first step is named),
    2 the trail cannot be read or replayed, or the command line is wrong.
    """  # noqa: D301 - click wants the character itself
    if against == "fake":
        for option, value in (("--request", job_id), ("--model", model), ("--tp", tp)):
            if value is not None:
                raise click.UsageError(f"{option} needs --against ranks")
    # Late, so that the client commands do not load what only a replay needs.
    from lanehost import replaying  # noqa: PLC0415
    from lanehost.recorder.trail import TrailError  # noqa: PLC0415

    def say(line: str) -> None:
        click.echo(line, err=True)

    try:
        if against == "fake":
            replayed, lines = replaying.replay_on_fake(trail, say)
        else:
            replayed, lines = replaying.replay_on_ranks(
                trail, say, job_id=job_id, model=model, tp=tp
            )
    except (TrailError, StartupFailed, RankGroupLost) as error:
        say(f"lanehost: cannot replay: {error}")
        sys.exit(_EXIT_CANNOT)
    for line in lines:
        click.echo(line)
    sys.exit(0 if replayed.difference is None else _EXIT_DIFFERS)
