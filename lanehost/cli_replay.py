"""`lanehost replay`: run a trail again, and name the first step that differs.

Exit codes: 0 all is equal, 1 something differs, 2 the trail cannot be read or cannot be
replayed here, or the command line is wrong.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import click

from lanehost.errors import RankGroupLost, StartupFailed
from lanehost.logs import set_up_logs
from lanehost.recorder.alone import find_request, replay_alone
from lanehost.recorder.check import check_trail
from lanehost.recorder.records import Closed, Cut, GroupWasLost, Header
from lanehost.recorder.replay import Replayed, check_has_prompts, replay_on
from lanehost.recorder.story import JobStory
from lanehost.recorder.trail import Trail, TrailError
from lanehost.settings import MAX_TP, RankGroupSettings

_EXIT_DIFFERS = 1
_EXIT_CANNOT = 2
_REPORT_INTERVAL_S = 2.0


@click.command()
@click.argument("trail", type=click.Path(path_type=Path), metavar="TRAIL")
@click.option(
    "--against",
    type=click.Choice(["fake", "ranks"]),
    default="ranks",
    show_default=True,
    help="`ranks` runs the model again; `fake` checks plans and results by the rules alone.",
)
@click.option("--request", "job_id", metavar="ID", help="Replay this request alone, on the ranks.")
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
      lanehost replay ./trails --request 3f9c

    \b
    Exit codes: 0 all is equal, 1 something differs (the first step is named),
    2 the trail cannot be read or replayed, or the command line is wrong.
    """  # noqa: D301 - click wants the character itself
    if against == "fake":
        for option, value in (("--request", job_id), ("--model", model), ("--tp", tp)):
            if value is not None:
                raise click.UsageError(f"{option} needs --against ranks")
    try:
        opened = Trail(trail)
        if against == "fake":
            replayed = check_trail(opened.header, opened, on_step=_Progress(time.monotonic))
        else:
            check_has_prompts(opened.header)
            settings = ranks_of(opened.header, model=model, tp=tp)
            # Before the ranks load: a request that is not there is said at once.
            job = None if job_id is None else find_request(opened.header, opened, job_id)
            set_up_logs(is_json=False)
            replayed = asyncio.run(_on_ranks(opened, settings, job))
    except (TrailError, StartupFailed, RankGroupLost) as error:
        click.echo(f"lanehost: cannot replay: {error}", err=True)
        sys.exit(_EXIT_CANNOT)
    for line in tell(replayed, opened, is_whole=job_id is None):
        click.echo(line)
    sys.exit(0 if replayed.difference is None else _EXIT_DIFFERS)


def ranks_of(header: Header, *, model: Path | None, tp: int | None) -> RankGroupSettings:
    """Return settings for ranks like those of a trail."""
    facts = header.facts
    return RankGroupSettings(
        model_path=model or Path(header.model_path),
        tp=tp or facts.world_size,
        dtype=header.dtype,
        device=header.device,
        num_lanes=facts.num_lanes,
        max_step_tokens=facts.max_step_tokens,
        kv_tokens=facts.kv_tokens,
        block_size=facts.block_size,
    )


async def _on_ranks(trail: Trail, settings: RankGroupSettings, job: JobStory | None) -> Replayed:
    # Late: `--against fake` needs no gRPC and no processes.
    from lanehost.rank_group.supervisor import running_rank_group  # noqa: PLC0415

    progress = _Progress(time.monotonic)
    async with AsyncExitStack() as stack:
        running = running_rank_group(settings, on_progress=lambda _: None)
        group = await stack.enter_async_context(running)
        if job is not None:
            return await replay_alone(group, trail.header, job, on_step=progress)
        return await replay_on(group, trail.header, trail, on_step=progress)


class _Progress:
    """Says now and then, on standard error, how many steps are done."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told_s = clock()

    def __call__(self, num_steps: int) -> None:
        now_s = self._clock()
        if now_s - self._told_s >= _REPORT_INTERVAL_S:
            self._told_s = now_s
            click.echo(f"lanehost: {num_steps} steps are equal so far", err=True)


def tell(replayed: Replayed, trail: Trail, *, is_whole: bool) -> list[str]:
    """Put the end of a replay into lines."""
    if replayed.difference is not None:
        return [f"DIFFERS after {replayed.num_steps} equal steps. {replayed.difference}"]
    lines = [f"EQUAL: {replayed.num_steps} steps, {replayed.num_tokens} tokens"]
    if not is_whole:
        return lines
    if trail.torn.num_bytes:
        lines.append(f"the last {trail.torn.num_bytes} bytes are no whole record: torn off")
    match replayed.end:
        case None:
            lines.append("the trail stops in mid-run")
        case Cut(reason=reason):
            lines.append(f"recording stopped before the run ended: {reason}")
        case GroupWasLost(reason=reason):
            lines.append(f"the run ended with the loss of its ranks: {reason}")
        case Closed():
            pass
    return lines
