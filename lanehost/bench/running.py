"""Start what a bench needs, run it, and put how it went into lines and an object."""

import asyncio
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lanehost.bench import quality, serve_report, step_parts, step_report
from lanehost.bench.load import MonotonicClock
from lanehost.bench.plot import plot_run
from lanehost.bench.quality import OWN_TEXT, QualityBench, measure_quality
from lanehost.bench.rates import Rates, best_of, measure_rates
from lanehost.bench.reply_times import ReplyTimes
from lanehost.bench.scenarios import ServeBench, Served, run_bench
from lanehost.bench.step_loop import Figures, LoopSettings, measure_steps
from lanehost.client import AsyncClient
from lanehost.door.model_card import ModelCard
from lanehost.errors import StartupFailed
from lanehost.logs import set_up_logs
from lanehost.rank_group.facts import GroupFacts
from lanehost.rank_group.supervisor import RANK_COMMAND, running_rank_group
from lanehost.settings import RankGroupSettings

_REPORT_INTERVAL_S = 2.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How a bench went: for people, and for machines."""

    lines: list[str]
    told: dict[str, Any]


def measured_where() -> dict[str, Any]:
    """Tell the machine and the time, which stand beside every figure."""
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


class Progress:
    """Says now and then how many requests have ended."""

    def __init__(self, say: Say, num_requests: int, *, clock: Callable[[], float]) -> None:
        """Begin; `clock` gives seconds that only rise."""
        self._say = say
        self._num_requests = num_requests
        self._clock = clock
        self._told_s = clock()
        self._num_ended = 0
        self._num_tokens = 0

    def __call__(self, reply: ReplyTimes) -> None:
        """Hear that a request has ended."""
        self._num_ended += 1
        self._num_tokens += reply.num_tokens
        now_s = self._clock()
        if now_s - self._told_s >= _REPORT_INTERVAL_S:
            self._told_s = now_s
            self._say(
                f"{self._num_ended} of {self._num_requests} requests, {self._num_tokens} tokens"
            )


def run_serve(
    bench: ServeBench, client: Callable[[], AsyncClient], card: ModelCard, say: Say
) -> Served:
    """Load a server, and return all times."""
    say(f"{bench.num_warmup} requests to warm up, then {bench.num_sent} that count")
    progress = Progress(say, bench.num_sent, clock=time.monotonic)

    async def run() -> Served:
        async with client() as opened:
            return await run_bench(
                bench,
                opened,
                MonotonicClock(),
                vocab_size=card.vocab_size,
                on_counted=progress,
            )

    return asyncio.run(run())


def tell_serve(bench: ServeBench, served: Served, card: ModelCard, plot: Path | None) -> Report:
    """Put a run against a server into words, and into a picture where one is wanted.

    Raises:
        OSError: The picture cannot be written.
    """
    if plot is not None:
        plot_run(served, plot)
    return Report(
        lines=serve_report.report_lines(bench, served, card),
        told=serve_report.report_object(bench, served, card),
    )


def run_step(
    ranks: RankGroupSettings,
    loop: LoopSettings,
    say: Say,
    rank_command: tuple[str, ...] = RANK_COMMAND,
    measure: Callable[[RankGroupSettings], Rates | None] = measure_rates,
) -> Report:
    """Measure what the machine can do, start ranks, drive the step loop, and end them.

    Raises:
        StartupFailed: The ranks cannot start, or the model is too short for the loop.
        StepFailed: They refused a step.
        RankGroupLost: They were lost.
    """
    set_up_logs(is_json=False)
    say("measuring how fast this machine reads and multiplies")
    rates = measure(ranks)

    async def run() -> tuple[GroupFacts, list[Figures]]:
        started = running_rank_group(ranks, on_progress=lambda _: None, rank_command=rank_command)
        async with started as group:
            if loop.max_positions > group.facts.context_length:
                raise StartupFailed(
                    f"prompt and steps take {loop.max_positions} positions, "
                    f"the model has {group.facts.context_length}"
                )
            found = await measure_steps(
                group,
                loop,
                clock_ns=time.perf_counter_ns,
                on_round=lambda done: say(f"{done} of {loop.num_rounds} rounds"),
            )
            return group.facts, found

    facts, found = asyncio.run(run())
    rates = best_of(rates, measure(ranks))
    name = ranks.model_path.name
    lines = step_report.report_lines(facts, loop, found, name)
    told = step_report.report_object(facts, loop, found, name)
    return Report(
        lines=lines + step_parts.part_lines(loop, found, rates),
        told=told | step_parts.part_object(loop, found, rates),
    )


def run_quality(
    bench: QualityBench,
    text: Path,
    say: Say,
    command: tuple[str, ...] = quality.QUALITY_COMMAND,
) -> Report:
    """Compare the model as served with its float32 reference.

    Raises:
        StartupFailed: The model, the device or the text cannot be used.
    """
    found = measure_quality(
        bench,
        read_text(text),
        on_window=lambda done, count: say(f"{done} of {count} windows"),
        command=command,
    )
    name = bench.model_path.name
    told = quality.report_object(bench, found, name)
    return Report(lines=quality.report_lines(bench, found, name), told=told | {"text": text.name})


def read_text(path: Path = OWN_TEXT) -> str:
    """Read a text.

    Raises:
        StartupFailed: It cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise StartupFailed(f"{path} cannot be read as text: {err}") from err
