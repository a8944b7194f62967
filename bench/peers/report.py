"""Put what was found into tables; pure."""

from collections.abc import Mapping, Sequence

from bench.peers.outputs import Numbers
from bench.peers.ratios import Round, fastest, median_in, ratio_in, ratio_of, reached
from bench.peers.shape import FIRST_TOKEN_GOAL, GOALS, MEAN_KL_GOAL, SAME_TOP_GOAL
from lanehost.bench.tables import align, define

_MEGABYTE = 1e6

DEFINITIONS = {
    "prefill": "tokens per second of a prompt of 256 tokens that runs alone",
    "decode N": "new tokens per second, all lanes together, N lanes each behind a prompt of 256 "
    "tokens; all steps of a round count, tokens over time. lanehost draws its tokens in it, "
    "llama.cpp's tools draw none",
    "peak MB": "the most memory of every process of a side, added up; of the rounds, the most. "
    "All sides hold 16 lanes; of llama.cpp it is that of llama-batched-bench",
    "ratio": "lanehost over the side in the same round: the median of all rounds, and in brackets "
    "the least and the most",
    "llama.cpp's best": "in each column the type that is fastest there by its median",
}


def speed_lines(
    rounds: Sequence[Round],
    columns: Sequence[str],
    sides: Mapping[str, str],
    peak_bytes: Mapping[str, int],
    ours: str,
) -> list[str]:
    """Write tokens per second, ratios and goals; `sides` tells what is to be known of each."""
    return [
        f"tokens per second, medians of {len(rounds)} rounds in turn",
        *align(
            [
                ["", *columns, "peak MB"],
                *(
                    [side, *_medians(rounds, columns, side), _megabytes(peak_bytes.get(side))]
                    for side in sides
                ),
            ]
        ),
        "",
        *(f"  {side}: {note}" for side, note in sides.items()),
        "",
        f"ratio: {ours} ÷ side, median (least to most)",
        *align([["", *columns], *_ratio_rows(rounds, columns, sides, ours), *_goal_rows(columns)]),
        *define(DEFINITIONS),
    ]


def _medians(rounds: Sequence[Round], columns: Sequence[str], side: str) -> list[str]:
    medians = [median_in(rounds, column, side) for column in columns]
    return ["-" if median is None else f"{median:.1f}" for median in medians]


def _ratio_rows(
    rounds: Sequence[Round], columns: Sequence[str], sides: Mapping[str, str], ours: str
) -> list[list[str]]:
    """One row for each other side, one for the best type of llama.cpp, one for what it reaches."""
    rows = []
    for side in sides:
        if side != ours:
            ratios = [ratio_in(rounds, column, over=ours, under=side) for column in columns]
            rows.append([side, *("-" if one is None else str(one) for one in ratios)])
    llamas = [side for side in sides if side.startswith("llama.cpp")]
    best: list[str] = []
    marks: list[str] = []
    for column in columns:
        kind = fastest(rounds, column, llamas)
        ratio = None if kind is None else ratio_in(rounds, column, over=ours, under=kind)
        best.append("-" if ratio is None else str(ratio))
        marks.append("-" if ratio is None else reached(ratio.median, column, GOALS))
    return [*rows, ["llama.cpp's best", *best], ["reached", *marks]]


def _goal_rows(columns: Sequence[str]) -> list[list[str]]:
    return [
        [name, *(f"{goals[column]:.1f}" for column in columns)] for name, goals in GOALS.items()
    ]


def first_token_lines(
    rounds: Sequence[Mapping[str, float]],
    peak_bytes: Mapping[str, int],
    *,
    ours: str,
    theirs: str,
    num_clients: int,
) -> list[str]:
    """Write how long clients wait for their first token."""
    ratio = ratio_of([(one[ours], one[theirs]) for one in rounds])
    rows = [["", "s", "peak MB"]]
    for side in (ours, theirs):
        told = median_in([{side: {"s": one[side]}} for one in rounds], "s", side)
        cell = "-" if told is None else f"{told:.2f}"
        rows.append([side, cell, _megabytes(peak_bytes.get(side))])
    return [
        f"first token, {num_clients} clients at once, prompts of 256 tokens, {len(rounds)} rounds",
        *align(rows),
        f"ratio {ours} ÷ {theirs}: {ratio or '-'}; goal: at most {FIRST_TOKEN_GOAL}",
    ]


def closeness_lines(
    text: str, numbers: Mapping[str, Numbers], without: Mapping[str, str]
) -> list[str]:
    """Write how far each side is from float32."""
    head = ["", "mean KL", "median", "99 %", "same top", "perplexity", "in float32"]
    rows = [
        [
            side,
            f"{one.mean_kl:.6f}",
            f"{one.median_kl:.6f}",
            f"{one.p99_kl:.6f}",
            f"{one.same_top_share:.2%}",
            f"{one.perplexity:.3f}",
            f"{one.reference_perplexity:.3f}",
        ]
        for side, one in numbers.items()
    ]
    return [
        f"divergence from float32 over {text}",
        *align([head, *rows]),
        *(f"  {side}: {why}" for side, why in without.items()),
        f"goal: mean KL at most {MEAN_KL_GOAL}, same top token at least {SAME_TOP_GOAL:.0%}",
    ]


def _megabytes(count: int | None) -> str:
    return "-" if count is None else f"{count / _MEGABYTE:.0f}"
