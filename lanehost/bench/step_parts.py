"""Where the ranks' time of a step goes, beside the floor of this machine; pure."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lanehost.bench.rates import Rates, StepWork, floor_ns
from lanehost.bench.step_loop import Figures, LoopSettings
from lanehost.bench.tables import align, define

# In the order of a step; what ranks name beside these comes last.
_ORDER = (
    "inputs", "norm", "products", "rotate", "attention", "forward", "exchange", "head",
    "sampling", "other",
)  # fmt: skip

DEFINITIONS = {
    "inputs": "median of laying out rows, tables and embeddings, and of calls into the library",
    "norm": "norms, and rounding their rows to eight bits",
    "products": "the products of all layers, with activations, roundings and sums behind them",
    "rotate": "rotating queries and keys, and writing keys and values",
    "attention": "scores, softmax, weighed values, and rounding them",
    "forward": "the whole model, where it does not tell its parts",
    "exchange": "all-reduces, joining logits and telling ids, waiting for the other rank included",
    "head": "the last norm and the logits",
    "sampling": "from logits to token ids",
    "other": "checks, seating, digests, and what is in no other part",
    "step": "median of what the leader says a step took it; the parts of each step add up to it, "
    "their medians nearly. A part ends when the slowest thread of the leader has done its share",
    "floor": "the least that a part can take: the longer of reading its bytes once (weights; "
    "keys and values of all positions) and of its products, at the best rates that this "
    "machine showed before or after. What has no floor is taken to cost nothing",
    "reached": "the floor of the whole step over what it took",
}


def part_lines(settings: LoopSettings, found: Sequence[Figures], rates: Rates | None) -> list[str]:
    """Write the table of parts and what it means; nothing where no step told its parts."""
    names = _names(found)
    if not names:
        return []
    rows = [["ms", *names, "step", "reached"]]
    for one in found:
        parts = [f"{one.parts[name].p50 / 1e6:.2f}" if name in one.parts else "" for name in names]
        rows.append([one.name, *parts, f"{one.compute.p50 / 1e6:.2f}", ""])
        if rates is not None:
            rows.append(_floor_row(one, names, floor_of(one, settings, rates)))
    words = {name: DEFINITIONS[name] for name in (*names, "step", "floor", "reached")}
    return ["", *align(rows), *([] if rates is None else _rate_lines(rates)), *define(words)]


def part_object(
    settings: LoopSettings, found: Sequence[Figures], rates: Rates | None
) -> dict[str, Any]:
    """Give rates, floors in nanoseconds and the shares of them that were reached."""
    if rates is None:
        return {"rates": None, "floors": {}, "definitions_of_parts": DEFINITIONS}
    floors = {one.name: floor_of(one, settings, rates) for one in found}
    return {
        "rates": asdict(rates),
        "floors": {
            one.name: {
                "parts": floors[one.name],
                "reached": sum(floors[one.name].values()) / one.compute.p50,
            }
            for one in found
        },
        "definitions_of_parts": DEFINITIONS,
    }


def floor_of(one: Figures, settings: LoopSettings, rates: Rates) -> dict[str, float]:
    """The floor of one kind of step, by part."""
    return floor_ns(rates, work_of(one, settings))


def work_of(one: Figures, settings: LoopSettings) -> StepWork:
    """What a step does: a prefill is one lane's whole prompt, a decode a row of every lane."""
    if one.name == "prefill":
        length = settings.prompt_tokens
        return StepWork(num_rows=length, num_draws=1, num_positions=length)
    length = settings.prompt_tokens + settings.num_warmup + settings.num_steps // 2
    lanes = one.num_tokens
    return StepWork(num_rows=lanes, num_draws=lanes, num_positions=lanes * length)


def _names(found: Sequence[Figures]) -> list[str]:
    told = {name for one in found for name in one.parts}
    return [name for name in _ORDER if name in told]


def _floor_row(one: Figures, names: list[str], floor: dict[str, float]) -> list[str]:
    """A floor whose part is not told stands in the part that holds it."""
    held = dict.fromkeys(names, 0.0)
    for part, ns in floor.items():
        home = part if part in held else "forward"
        held[home] = held.get(home, 0.0) + ns
    total = sum(floor.values())
    cells = [f"{held[name] / 1e6:.2f}" if held[name] else "" for name in names]
    return ["  floor", *cells, f"{total / 1e6:.2f}", f"{total / one.compute.p50:.0%}"]


def _rate_lines(rates: Rates) -> list[str]:
    reading = ", ".join(
        f"{rate / 1e9:.1f} GB/s with {count} thread{'s' if count > 1 else ''}"
        for count, rate in rates.read_bytes_per_s.items()
    )
    products = ", ".join(f"{part} {rate / 1e9:.0f}" for part, rate in rates.ops_per_s.items())
    weights = sum(one.num_bytes for one in rates.weights.values())
    lines = [
        "",
        f"measured around it: reading {reading}",
        f"weights {weights / 1e6:.1f} MB; a position {rates.kv_bytes_per_position / 1e3:.1f} kB",
    ]
    if products:
        lines.append(f"hot products with {rates.num_threads} threads in all, GOP/s: {products}")
    return lines
