"""The step loop as a table for people and as an object for machines; pure."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lanehost.bench.step_loop import Figures, LoopSettings
from lanehost.bench.tables import align, define
from lanehost.rank_group.facts import GroupFacts

DEFINITIONS = {
    "compute": "median of what the leader says a step took it, collectives included, with two "
    "steps in flight",
    "wire": "median of the rest of a step that runs alone: from the master's streams to the "
    "ranks and back, and waiting for the slowest of them",
    "master": "median of writing a plan and handing it to the streams; what the engine does "
    "beyond that (stop rules, text, events) is not in the loop",
    "alone": "median from one outcome to the next with one step in flight",
    "paired": "the same with two in flight, as the server runs",
    "shown": "median of what a paired step takes beyond its compute, as a share of the step",
    "hidden": "the share of what a lone step takes beyond its compute that a paired step does not",
    "tokens/s": "tokens of a step over the median paired step",
}
_HEAD = ["ms", "compute", "wire", "master", "alone", "paired", "shown", "hidden", "tokens/s"]


def report_lines(
    facts: GroupFacts, settings: LoopSettings, found: Sequence[Figures], model_name: str
) -> list[str]:
    """Write the table, and what it means."""
    ranks = f"{facts.world_size} rank{'s' if facts.world_size > 1 else ''}"
    length = settings.prompt_tokens
    steps = (
        f"{settings.num_rounds} rounds of {settings.num_prefills} and {settings.num_steps} steps"
    )
    model = f"{model_name}, {facts.dtype} on {facts.device}, weights: {facts.weights}"
    return [
        f"{model}, {ranks}, collective: {facts.collective}",
        f"prefill of {length} tokens in one step, decode behind {length} tokens a lane; {steps}",
        "",
        *align([_HEAD, *map(_row, found)]),
        *define(DEFINITIONS),
    ]


def report_object(
    facts: GroupFacts, settings: LoopSettings, found: Sequence[Figures], model_name: str
) -> dict[str, Any]:
    """Give the figures, in nanoseconds where they are times, and what was asked for."""
    return {
        "model": {"name": model_name, **asdict(facts)},
        "bench": asdict(settings),
        "figures": [asdict(one) for one in found],
        "definitions": DEFINITIONS,
    }


def _row(one: Figures) -> list[str]:
    spreads = (one.compute, one.wire, one.master, one.alone, one.paired)
    return [
        one.name,
        *(f"{spread.p50 / 1e6:.2f}" for spread in spreads),
        f"{one.shown_ns / one.paired.p50:.1%}",
        f"{one.hidden_share:.0%}",
        f"{one.tokens_per_s:.1f}",
    ]
