"""How close the model as served is to its float32 reference, over a fixed text.

The text becomes windows of token ids here; `python -m ranks.quality` runs them through both
models in a process of its own, since logits do not cross the wire of the ranks. As in
llama.cpp's tool of the same purpose, the second half of each window counts, so that every
token that counts has at least half a window before it.

Law: no process is left, however the measuring ends.
"""

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lanehost.bench.spread import percentile
from lanehost.bench.tables import align, define
from lanehost.errors import StartupFailed
from lanehost.settings import check_numerics
from lanehost.text.model_text import load_model_text

QUALITY_COMMAND = (sys.executable, "-m", "ranks.quality")
OWN_TEXT = Path(__file__).with_name("quality.txt")
MIN_WINDOW = 8
_STOP_TIMEOUT_S = 10.0

DEFINITIONS = {
    "KL": "at one position, how far the served distribution over the next token is from that "
    "of float32: sum of p ln(p / q) over the vocabulary, in nats; p of float32, q as served",
    "same top token": "positions where both have the same likeliest token",
    "perplexity": "exp of the mean of -ln of the probability that the model gives to the token "
    "the text goes on with",
    "positions": "the second half of every window, but its last token: what has at least half "
    "a window before it, and a known next token",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityBench:
    """What is compared, with what, over how long windows."""

    model_path: Path
    dtype: str
    weights: str
    device: str
    num_threads: int | None
    window: int

    def __post_init__(self) -> None:
        """Refuse what does not fit together, with the value and the limit."""
        check_numerics(dtype=self.dtype, weights=self.weights, device=self.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The figures; DEFINITIONS says what they mean."""

    num_windows: int
    num_positions: int
    mean_kl: float
    median_kl: float
    p99_kl: float
    most_kl: float
    same_top_share: float
    reference_perplexity: float
    served_perplexity: float


def cut_windows(token_ids: Sequence[int], window: int) -> list[list[int]]:
    """Cut a text into windows that follow one another; what is left at its end is dropped.

    Raises:
        StartupFailed: It is shorter than one window.
    """
    if len(token_ids) < window:
        raise StartupFailed(
            f"the text has {len(token_ids)} tokens, a window has {window}: give a longer text, "
            "or a smaller --window"
        )
    return [
        list(token_ids[begin : begin + window])
        for begin in range(0, len(token_ids) - window + 1, window)
    ]


def summarise(lines: Sequence[dict[str, Any]]) -> Quality:
    """Put the windows together."""
    kl = [value for line in lines for value in line["kl"]]
    return Quality(
        num_windows=len(lines),
        num_positions=len(kl),
        mean_kl=sum(kl) / len(kl),
        median_kl=percentile(kl, 50),
        p99_kl=percentile(kl, 99),
        most_kl=max(kl),
        same_top_share=sum(line["num_same_top"] for line in lines) / len(kl),
        reference_perplexity=math.exp(sum(line["reference_nll"] for line in lines) / len(kl)),
        served_perplexity=math.exp(sum(line["served_nll"] for line in lines) / len(kl)),
    )


def measure_quality(
    bench: QualityBench,
    text: str,
    *,
    on_window: Callable[[int, int], None],
    command: tuple[str, ...] = QUALITY_COMMAND,
) -> Quality:
    """Compare over a text; `on_window` hears how many windows are done, and of how many.

    Raises:
        StartupFailed: The model, the device or the text cannot be used.
    """
    token_ids = load_model_text(bench.model_path).tokenizer.encode(text)
    windows = cut_windows(token_ids, bench.window)
    return summarise(measure_windows(bench, windows, on_window=on_window, command=command))


def measure_windows(
    bench: QualityBench,
    windows: Sequence[Sequence[int]],
    *,
    on_window: Callable[[int, int], None],
    command: tuple[str, ...],
) -> list[dict[str, Any]]:
    """Run windows through both models; a line for each, as `ranks.quality` writes them.

    Raises:
        StartupFailed: What measures failed; the message says why, or with which exit code.
    """
    order = {"windows": windows, "first": bench.window // 2}
    lines: list[dict[str, Any]] = []
    with _measuring(bench, command) as process:
        for line in _answers(process, order):
            lines.append(line)
            on_window(len(lines), len(windows))
    if len(lines) < len(windows):
        raise StartupFailed(
            f"what measures ended after {len(lines)} of {len(windows)} windows, "
            f"exit code {process.returncode}; its last lines say why"
        )
    return lines


@contextmanager
def _measuring(bench: QualityBench, command: tuple[str, ...]) -> Iterator[subprocess.Popen[str]]:
    """Run what measures for as long as the body runs; it is gone afterwards."""
    threads = () if bench.num_threads is None else ("--threads", str(bench.num_threads))
    model = ("--model", str(bench.model_path.absolute()))
    how = ("--dtype", bench.dtype, "--weights", bench.weights, "--device", bench.device)
    # A session of its own: Ctrl-C is for the program that started it, which then ends it.
    process = subprocess.Popen(  # noqa: S603 - our own program
        [*command, *model, *how, *threads],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_TIMEOUT_S)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _answers(process: subprocess.Popen[str], order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Send the order, and give each line of the answer; standard input stays open."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        return  # it has ended; its exit code is said
    for text in process.stdout:
        if not text.endswith("\n"):
            return  # it ended in the middle of a word
        line = json.loads(text)
        if "error" in line:
            raise StartupFailed(line["error"])
        yield line


def report_lines(bench: QualityBench, found: Quality, model_name: str) -> list[str]:
    """Write the figures, and what they mean."""
    rows = [
        ["mean KL", f"{found.mean_kl:.6f}"],
        ["median KL", f"{found.median_kl:.6f}"],
        ["99 % KL", f"{found.p99_kl:.6f}"],
        ["most KL", f"{found.most_kl:.6f}"],
        ["same top token", f"{found.same_top_share:.2%}"],
        ["perplexity as served", f"{found.served_perplexity:.4f}"],
        ["perplexity in float32", f"{found.reference_perplexity:.4f}"],
    ]
    how = f"--dtype {bench.dtype} --weights {bench.weights}"
    return [
        f"{model_name}, {how} beside float32, --device {bench.device}",
        f"{found.num_windows} windows of {bench.window} tokens, {found.num_positions} positions",
        "",
        *align(rows),
        *define(DEFINITIONS),
    ]


def report_object(bench: QualityBench, found: Quality, model_name: str) -> dict[str, Any]:
    """Give the figures and what was asked for."""
    asked = {**asdict(bench), "model_path": bench.model_path.name}
    return {
        "model": {"name": model_name},
        "bench": asked,
        "figures": asdict(found),
        "definitions": DEFINITIONS,
    }
