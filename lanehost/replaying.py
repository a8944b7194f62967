"""Replay a trail: open it, start ranks like its own where it needs them, and tell the end."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from lanehost.engine.backend import Epochs, OnlyEpoch
from lanehost.logs import set_up_logs
from lanehost.rank_group.supervisor import running_rank_group
from lanehost.recorder.alone import find_request, replay_alone
from lanehost.recorder.check import check_trail
from lanehost.recorder.records import Closed, Cut, GroupWasLost, Header
from lanehost.recorder.replay import Replayed, check_has_prompts, replay_on
from lanehost.recorder.story import JobStory
from lanehost.recorder.trail import Trail
from lanehost.settings import IDLE_STAGED_ROWS, RankGroupSettings

REPORT_INTERVAL_S = 2.0


class Progress:
    """Says now and then how many steps are done."""

    def __init__(self, say: Callable[[str], None], *, clock: Callable[[], float]) -> None:
        """Begin; `clock` gives seconds that only rise."""
        self._say = say
        self._clock = clock
        self._told_s = clock()

    def __call__(self, num_steps: int) -> None:
        """Hear that a step is done."""
        now_s = self._clock()
        if now_s - self._told_s >= REPORT_INTERVAL_S:
            self._told_s = now_s
            self._say(f"lanehost: {num_steps} steps are equal so far")


def replay_on_fake(path: Path, say: Callable[[str], None]) -> tuple[Replayed, list[str]]:
    """Check a trail by the rules alone; returns how it went, and in words.

    Raises:
        TrailError: It cannot be read.
    """
    trail = Trail(path)
    progress = Progress(say, clock=time.monotonic)
    replayed = check_trail(trail.header, trail, on_step=progress)
    return replayed, tell(replayed, trail, is_whole=True)


def replay_on_ranks(
    path: Path,
    say: Callable[[str], None],
    *,
    job_id: str | None,
    model: Path | None,
    tp: int | None,
) -> tuple[Replayed, list[str]]:
    """Run a trail, or one request of it, on ranks; returns how it went, and in words.

    Args:
        path: The trail.
        say: Hears of the progress.
        job_id: The request to run alone; None runs the whole trail.
        model: Where the model is now; None for where it was.
        tp: How many ranks; None for as many as there were.

    Raises:
        TrailError: The trail cannot be read, or not be replayed like this.
        StartupFailed: The ranks cannot start.
        RankGroupLost: The ranks were lost.
    """
    trail = Trail(path)
    check_has_prompts(trail.header)
    settings = ranks_of(trail.header, model=model, tp=tp)
    # Before the ranks load: a request that is not there is said at once.
    job = None if job_id is None else find_request(trail.header, trail, job_id)
    set_up_logs(is_json=False)
    replayed = asyncio.run(_on_ranks(trail, settings, job, say))
    return replayed, tell(replayed, trail, is_whole=job is None)


def ranks_of(header: Header, *, model: Path | None, tp: int | None) -> RankGroupSettings:
    """Return settings for ranks like those of a trail."""
    facts = header.facts
    return RankGroupSettings(
        model_path=model or Path(header.model_path),
        tp=tp or facts.world_size,
        dtype=header.dtype,
        weights=header.weights,
        device=header.device,
        num_lanes=facts.num_lanes,
        max_step_tokens=facts.max_step_tokens,
        kv_tokens=facts.kv_tokens,
        block_size=facts.block_size,
        keeps_spare=False,
        # A trail of a model without images has 0 of both, and its ranks take none.
        max_staged_tokens=facts.max_staged_tokens or IDLE_STAGED_ROWS,
        image_cache_tokens=facts.image_cache_tokens or IDLE_STAGED_ROWS,
    )


async def _on_ranks(
    trail: Trail, settings: RankGroupSettings, job: JobStory | None, say: Callable[[str], None]
) -> Replayed:
    async with AsyncExitStack() as stack:
        running = running_rank_group(settings, on_progress=lambda _: None)
        group = await stack.enter_async_context(running)
        progress = Progress(say, clock=time.monotonic)
        if job is not None:
            return await replay_alone(group, trail.header, job, on_step=progress)
        ranks = Epochs(first=group, later=OnlyEpoch(group.lost))
        return await replay_on(ranks, trail.header, trail, on_step=progress)


def tell(replayed: Replayed, trail: Trail, *, is_whole: bool) -> list[str]:
    """Put the end of a replay into lines, fit for a terminal whatever the trail holds."""
    return [_printable(line) for line in _lines(replayed, trail, is_whole=is_whole)]


def _printable(line: str) -> str:
    """Escape what would move a cursor: a trail may come from anyone."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in line)


def _lines(replayed: Replayed, trail: Trail, *, is_whole: bool) -> list[str]:
    if replayed.difference is not None:
        return [f"DIFFERS after {replayed.num_steps} equal steps. {replayed.difference}"]
    equal = f"EQUAL: {replayed.num_steps} steps, {replayed.num_tokens} tokens"
    return [equal, *_end_of(replayed, trail)] if is_whole else [equal]


def _end_of(replayed: Replayed, trail: Trail) -> list[str]:
    """Say what a whole replay left out, and how the trail ends."""
    lines = []
    if replayed.num_epochs > 1:
        lines.append(f"epochs: {replayed.num_epochs}, the ranks were lost in between")
    if replayed.num_left_out:
        lines.append(
            f"left out: {replayed.num_left_out} steps that failed, or were skipped behind one"
        )
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
