"""Read what the tools write; pure.

Laws: a figure is of all the steps that a tool timed, tokens over time, on every side: a
median on one side against a mean on the other would hide what the machine did to one of them.
An output that lacks a figure is refused, never filled in.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench.peers.shape import PREFILL, Shape, decode


class UnknownOutput(Exception):
    """A tool wrote something else than was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """How far a model is from its float32 self, over one text."""

    mean_kl: float
    median_kl: float
    p99_kl: float
    same_top_share: float
    perplexity: float
    reference_perplexity: float


def read_llama_bench(text: str, shape: Shape) -> dict[str, float]:
    """Read `llama-bench -o json`: a prompt, or one lane that decodes behind one."""
    columns = {
        (shape.prompt_tokens, 0, 0): PREFILL,
        (0, shape.num_steps, shape.prompt_tokens): decode(1),
    }
    found = {}
    for row in _json(text, "llama-bench"):
        column = columns.get((row["n_prompt"], row["n_gen"], row["n_depth"]))
        if column is not None:
            tokens = (row["n_prompt"] + row["n_gen"]) * len(row["samples_ns"])
            found[column] = tokens / sum(row["samples_ns"]) * 1e9
    if not found:
        raise UnknownOutput("llama-bench told of no test that was asked for")
    return found


def read_batched_bench(text: str, shape: Shape) -> dict[str, float]:
    """Read `llama-batched-bench --output-format jsonl`.

    `S_TG` is all new tokens of all lanes over the time of all decode steps; each lane has a
    prompt of `PP` tokens before it. The tool leaves out, and does not say so, what does not
    fit its context.
    """
    found = {
        decode(row["pl"]): row["speed_tg"]
        for row in _json_lines(text)
        if (row.get("pp"), row.get("tg")) == (shape.prompt_tokens, shape.num_steps)
    }
    return _whole(found, tuple(map(decode, shape.lane_counts)), "llama-batched-bench")


def read_step(text: str, shape: Shape) -> dict[str, float]:
    """Read the file of `lanehost bench step --json`: two steps in flight, as a server runs."""
    found = {
        figures["name"]: figures["num_tokens"] / figures["paired"]["mean"] * 1e9
        for figures in _json(text, "lanehost bench step")["figures"]
    }
    return _whole(found, shape.columns, "lanehost bench step")


def read_speeds(text: str, shape: Shape, tool: str) -> dict[str, float]:
    """Read what our own programs for Python peers write: a line with an object of columns."""
    lines = [row for row in _json_lines(text) if PREFILL in row]
    return _whole(lines[-1] if lines else {}, shape.columns, tool)


_KL_LINES = {
    "mean_kl": r"Mean +KLD: *([-\d.]+)",
    "median_kl": r"Median +KLD: *([-\d.]+)",
    "p99_kl": r"99\.0% +KLD: *([-\d.]+)",
    "same_top_share": r"Same top p: *([\d.]+)",
    "perplexity": r"Mean PPL\(Q\) *: *([\d.]+)",
    "reference_perplexity": r"Mean PPL\(base\) *: *([\d.]+)",
}


def read_kl(text: str) -> Numbers:
    """Read the statistics of `llama-perplexity --kl-divergence`."""
    found = {}
    for name, pattern in _KL_LINES.items():
        match = re.search(pattern, text)
        if match is None:
            raise UnknownOutput(f"llama-perplexity wrote no line like {pattern!r}")
        found[name] = float(match[1])
    return Numbers(**{**found, "same_top_share": found["same_top_share"] / 100})


def read_quality(text: str) -> Numbers:
    """Read the file of `lanehost bench quality --json`."""
    figures = _json(text, "lanehost bench quality")["figures"]
    return Numbers(
        mean_kl=figures["mean_kl"],
        median_kl=figures["median_kl"],
        p99_kl=figures["p99_kl"],
        same_top_share=figures["same_top_share"],
        perplexity=figures["served_perplexity"],
        reference_perplexity=figures["reference_perplexity"],
    )


def read_event(line: bytes) -> int:
    """Tokens that llama-server has drawn up to this line of its stream; 0 where it says nothing.

    Their number and not the list: tokens that end in the middle of a character are in no list.
    """
    if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
        return 0
    event = _json(line.removeprefix(b"data: ").decode(), "llama-server")
    if "error" in event:
        raise UnknownOutput(f"llama-server: {event['error']}")
    return int(event.get("tokens_predicted", 0))


def _json(text: str, tool: str) -> Any:  # whatever a tool wrote
    try:
        return json.loads(text)
    except ValueError as err:
        raise UnknownOutput(f"{tool} wrote no JSON: {text[:200]!r}") from err


def _json_lines(text: str) -> Iterator[dict[str, Any]]:
    """Give the objects among lines of other kinds."""
    for line in text.splitlines():
        if line.startswith("{"):
            yield _json(line, "a tool")


def _whole(found: Mapping[str, float], wanted: tuple[str, ...], tool: str) -> dict[str, float]:
    """Return the wanted columns.

    Raises:
        UnknownOutput: One is absent.
    """
    absent = [column for column in wanted if column not in found]
    if absent:
        raise UnknownOutput(f"{tool} told nothing of {', '.join(absent)}")
    return {column: found[column] for column in wanted}
