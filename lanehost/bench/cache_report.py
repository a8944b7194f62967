"""Times by tier and the cost of saving as tables for people and an object for machines; pure."""

from dataclasses import asdict
from typing import Any

from lanehost.bench.cache_cost import LENGTHS, Cost, FilesSeen
from lanehost.bench.cache_tiers import CacheBench, Found, Tier
from lanehost.bench.spread import percentile, spread_of
from lanehost.bench.tables import align, define, milliseconds

DEFINITIONS = {
    "TTFT": "from when a turn is sent until its first token is here, by the clock of the client",
    "cold": "the first turn of a conversation, of which nothing is kept",
    "memory": "the next turn, while what was computed is in the blocks of the ranks",
    "disk": "the next turn, when other conversations have taken those blocks",
    "after a restart": "the next turn, to a server that was ended and started again in between",
    "after a rank loss": "the next turn, once ranks that were killed have come back",
    "sooner": "the median TTFT of a cold turn over that of this tier",
    "missed": "turns that did not find what the tier should have kept; they are in no figure",
    "bytes a token": "of the files of all ranks, over the positions that they cover",
    "tokens/s": "tokens of prompts and replies over the time of a round, all on one server; the "
    "ratio is taken within each round",
}
_HEAD = ["", "TTFT ms p50", "most", "sooner", "cached", "of disk", "turns", "missed"]


def report_lines(
    bench: CacheBench, found: Found, files: FilesSeen, cost: Cost | None, *, model: str, tp: int
) -> list[str]:
    """Write the tables, and what they mean."""
    ranks = f"{tp} rank{'s' if tp > 1 else ''}"
    turns = f"conversations of {bench.num_tokens} tokens, turns of {bench.turn_tokens} behind them"
    lines = [
        f"{model}, {ranks}: {turns}, {bench.num_rounds} rounds",
        "",
        *align([_HEAD, *(_row(found, tier) for tier in Tier)]),
        "",
        f"bytes a token: {_whole(files.bytes_per_token(tp))}",
    ]
    if cost is not None:
        lines.append(_cost_line(bench, cost))
    return [*lines, *define(DEFINITIONS)]


def _cost_line(bench: CacheBench, cost: Cost) -> str:
    return (
        f"tokens/s with saving over without: {_ratio(cost.ratios)}, without over without "
        f"{_ratio(cost.noise)}, "
        f"{len(cost.ratios)} rounds of {bench.num_requests} requests in {bench.num_streams} "
        f"streams, prompts of {LENGTHS.prompt[0]}, replies of {LENGTHS.reply[0]}; "
        f"{cost.files.num_files} files, {cost.files.num_bytes / 1e6:.0f} MB were written"
    )


def _ratio(ratios: list[float]) -> str:
    low, high = percentile(ratios, 25), percentile(ratios, 75)
    return f"median {percentile(ratios, 50):.3f} (quartiles {low:.3f} to {high:.3f})"


def report_object(
    bench: CacheBench, found: Found, files: FilesSeen, cost: Cost | None, *, model: str, tp: int
) -> dict[str, Any]:
    """Give the figures, in seconds where they are times, and what was asked for."""
    return {
        "model": model,
        "tp": tp,
        "bench": asdict(bench),
        "tiers": {
            tier.value: {
                "ttft": _spread(found, tier),
                "sooner": _sooner(found, tier),
                "cached_tokens": [turn.cached_tokens for turn in found.turns[tier]],
                "disk_cached_tokens": [turn.disk_cached_tokens for turn in found.turns[tier]],
                "num_missed": found.num_missed[tier],
            }
            for tier in Tier
        },
        "files": asdict(files),
        "bytes_per_token": files.bytes_per_token(tp),
        "cost": None
        if cost is None
        else {**asdict(cost), "ratios": cost.ratios, "noise": cost.noise},
        "definitions": DEFINITIONS,
    }


def _row(found: Found, tier: Tier) -> list[str]:
    turns, spread = found.turns[tier], spread_of(_times(found, tier))
    sooner = _sooner(found, tier)
    return [
        tier.value,
        milliseconds(spread.p50 if spread else None),
        milliseconds(spread.most if spread else None),
        "-" if sooner is None else f"{sooner:.1f}",
        _middle([turn.cached_tokens for turn in turns]),
        _middle([turn.disk_cached_tokens for turn in turns]),
        str(len(turns)),
        str(found.num_missed[tier]),
    ]


def _times(found: Found, tier: Tier) -> list[float]:
    return [turn.ttft_s for turn in found.turns[tier] if turn.ttft_s is not None]


def _spread(found: Found, tier: Tier) -> dict[str, float] | None:
    spread = spread_of(_times(found, tier))
    return None if spread is None else asdict(spread)


def _sooner(found: Found, tier: Tier) -> float | None:
    cold, here = _times(found, Tier.COLD), _times(found, tier)
    return percentile(cold, 50) / percentile(here, 50) if cold and here else None


def _middle(counts: list[int]) -> str:
    return _whole(percentile(counts, 50) if counts else None)


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
