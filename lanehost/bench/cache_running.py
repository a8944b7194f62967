"""Run all of `lanehost bench cache`, and tell how it went."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from lanehost.bench.cache_cost import measure_cost, see_files
from lanehost.bench.cache_report import report_lines, report_object
from lanehost.bench.cache_tiers import CacheBench, NewSide, Tier, measure_tiers
from lanehost.bench.running import Report


async def run_cache(
    bench: CacheBench,
    new_side: NewSide,
    folder: Path,
    say: Callable[[str], None],
    *,
    model: str,
    tp: int,
) -> Report:
    """Measure the tiers and the cost, each in a folder of its own below `folder`.

    Raises:
        StartupFailed: A server does not start, or nothing was saved.
        ClientError: A request failed.
    """
    say(f"{bench.num_rounds} conversations of {bench.num_tokens} tokens")

    def tell(tier: Tier) -> None:
        say(f"asked {tier.value}")

    tiers, costs = folder / "tiers", folder / "cost"
    found = await measure_tiers(bench, new_side, tiers, tell)
    files = await asyncio.to_thread(see_files, tiers)
    cost = None
    if bench.num_requests:
        say(f"{bench.num_rounds} rounds of {bench.num_requests} requests, with saving and without")
        cost = await measure_cost(bench, new_side, costs)
    return Report(
        lines=report_lines(bench, found, files, cost, model=model, tp=tp),
        told=report_object(bench, found, files, cost, model=model, tp=tp),
    )
