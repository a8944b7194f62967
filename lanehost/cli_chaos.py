"""`lanehost chaos`: a server of its own, broken on purpose under load, and judged.

Exit codes: 0 every law held, 1 it could not be tried, 2 wrong command line, 5 a law was broken,
130 stopped with Ctrl-C.
"""

import asyncio
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lanehost.cli_bench_parts import ABOVE_0, OUT_FILE, said_in_a_line, say, with_json, write
from lanehost.client_errors import ClientError
from lanehost.errors import StartupFailed
from lanehost.settings import MAX_TP

if TYPE_CHECKING:
    # Late at run time, so that the client commands do not load what only this one needs.
    from lanehost.chaos.seen import ChaosRun

EXIT_BROKEN = 5
_MAX_SEED = 1 << 32
_DEFAULT_FAULTS = "kill,stop"
# A rank that hangs is waited for; options behind `--` win.
_SHORT_TIMEOUTS = ("--stall-timeout", "5", "--load-timeout", "120", "--drain-timeout", "120")


class _Faults(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """Names of faults with commas between."""

    name = "FAULT[,FAULT...]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        from lanehost.chaos.table import AT_RANDOM  # noqa: PLC0415

        known = [fault.value for fault in AT_RANDOM]
        names = tuple(str(value).split(","))
        for one in names:
            if one not in known:
                self.fail(f"{one!r} is not one of {', '.join(known)}", param, ctx)
        return names


@click.command(context_settings={"ignore_unknown_options": False})
@click.option(
    "--model", default="embedded", show_default=True, metavar="PATH|embedded", help="As in serve."
)
@click.option(
    "--tp", type=click.IntRange(1, MAX_TP), default=2, show_default=True, help="Ranks, as in serve."
)
@click.option(
    "--faults",
    type=_Faults(),
    default=_DEFAULT_FAULTS,
    show_default=True,
    help="What is done: kill, stop, partition, oom, nan, shape, raise, stuck.",
)
@click.option(
    "--duration", type=ABOVE_0, default=40.0, show_default=True, help="Seconds of faults."
)
@click.option("--count", type=click.IntRange(min=1), help="Most faults; default: as many as fit.")
@click.option(
    "--streams", type=click.IntRange(1, 1024), default=16, show_default=True, help="Requests open."
)
@click.option(
    "--requests",
    type=click.IntRange(1, 1024),
    default=8,
    show_default=True,
    help="Different requests, every second one seeded; each is asked over and over.",
)
@click.option(
    "--pause",
    type=ABOVE_0,
    default=2.0,
    show_default=True,
    help="Most seconds from a recovery to the next fault.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Of requests, faults and times.")
@click.option("--plot", type=OUT_FILE, metavar="FILE.svg", help="Draw it; needs lanehost[plot].")
@click.option(
    "--cells",
    metavar="FAULT/PHASE[,...]",
    help="Instead of random times: each fault in its phase, one after the other; `*` is any.",
)
@click.option("--list", "lists", is_flag=True, help="Print faults and phases, and try nothing.")
@with_json
@click.argument("serve_options", nargs=-1, type=click.UNPROCESSED)
def chaos(
    json_file: Path | None, plot: Path | None, *, lists: bool, cells: str | None, **options: Any
) -> None:
    """Break a server of its own on purpose, under load, and judge what its clients see.

    It starts `lanehost serve` on free ports, takes the undisturbed reply of every request, and
    then does faults at random times while streams ask. Behind `--` come options of `serve`.

    \b
    Examples:
      lanehost chaos
      lanehost chaos --duration 600 --faults kill,stop --count 200 --json out.json
      lanehost chaos --cells 'kill/*,oom/pass'
      lanehost chaos --model ./Qwen2.5-0.5B-Instruct --tp 1 -- --dtype float32 --lanes 8

    \b
    Exit codes: 0 every law held, 1 it could not be tried, 2 wrong command line, 5 a law was
    broken, 130 stopped with Ctrl-C for the second time; the first ends the faults and judges.
    """  # noqa: D301 - click wants the character itself
    if lists:
        for line in table_lines():
            click.echo(line)
    elif cells is not None:
        _try_cells(cells, options, json_file)
    else:
        _break_at_random(options, json_file, plot)


def _break_at_random(options: dict[str, Any], json_file: Path | None, plot: Path | None) -> None:
    from lanehost.bench.plot import check_can_plot  # noqa: PLC0415
    from lanehost.bench.running import Report  # noqa: PLC0415
    from lanehost.chaos.laws import broken_laws  # noqa: PLC0415
    from lanehost.chaos.plot import plot_chaos  # noqa: PLC0415
    from lanehost.chaos.report import report_lines, report_object  # noqa: PLC0415
    from lanehost.chaos.run import run_chaos  # noqa: PLC0415

    with said_in_a_line():
        if plot is not None:
            check_can_plot()
        run = _chaos_run(options)
        say(f"seed {run.seed}")
        try:
            seen = asyncio.run(run_chaos(run, say))
        except asyncio.CancelledError as error:
            raise KeyboardInterrupt from error
        except ClientError as error:
            raise StartupFailed(f"the server did not answer: {error}") from error
        if plot is not None:
            plot_chaos(seen, plot)
        report = Report(lines=report_lines(run, seen), told=report_object(run, seen))
        write(report, "chaos", json_file)
        if broken_laws(seen):
            sys.exit(EXIT_BROKEN)


def _chaos_run(options: dict[str, Any]) -> "ChaosRun":
    from lanehost.chaos.seen import ChaosRun  # noqa: PLC0415
    from lanehost.chaos.table import Fault  # noqa: PLC0415

    own = ("--model", options["model"], "--tp", str(options["tp"]), "--port", "0")
    seed = options["seed"]
    return ChaosRun(
        serve_args=(*own, "--http-port", "off", *options["serve_options"]),
        tp=options["tp"],
        faults=tuple(Fault(name) for name in options["faults"]),
        duration_s=options["duration"],
        max_faults=options["count"],
        num_streams=options["streams"],
        num_asked=options["requests"],
        pause_s=options["pause"],
        seed=secrets.randbelow(_MAX_SEED) if seed is None else seed,
    )


def _try_cells(words: str, options: dict[str, Any], json_file: Path | None) -> None:
    from lanehost.bench.running import Report  # noqa: PLC0415
    from lanehost.chaos.rig import Setup  # noqa: PLC0415
    from lanehost.chaos.tour import Tried, pairs_of, tour  # noqa: PLC0415

    try:
        pairs = pairs_of(words)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--cells") from error
    own = ("--model", options["model"], "--tp", str(options["tp"]), *_SHORT_TIMEOUTS)
    setup = Setup(serve_args=(*own, *options["serve_options"]), tp=options["tp"])

    async def run() -> list[Tried]:
        tried = []
        async for one in tour(setup, pairs):
            click.echo(one.line)
            tried.append(one)
        return tried

    with said_in_a_line():
        tried = asyncio.run(run())
        held = [
            {"fault": one.fault.value, "phase": one.phase.value, "broken": one.broken}
            for one in tried
            if one.reason is None
        ]
        broken = [one for one in held if one["broken"]]
        line = f"{len(held)} cells were tried, {len(broken)} broke a law"
        write(Report(lines=[line], told={"cells": held}), "chaos", json_file)
        if broken:
            sys.exit(EXIT_BROKEN)


def table_lines() -> list[str]:
    """Write the table of faults and phases."""
    from lanehost.chaos.table import Fault, Law, Phase, cell  # noqa: PLC0415

    lines = []
    for fault in Fault:
        lines.append(fault.value)
        for phase in Phase:
            found = cell(fault, phase)
            told = found.value if isinstance(found, Law) else f"cannot be: {found.reason}"
            lines.append(f"  {phase.value:11}{told}")
    return lines
