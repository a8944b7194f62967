"""`python -m ranks.quality`: the model as served beside its float32 reference, token by token.

Loads the model twice on one rank, reads one line of JSON from standard input,

    {"windows": [[token ids], ...], "first": position}

and runs every window through both, each in one step. Of each window it writes a line of
JSON: for the positions from `first` to the last but one, whose next token is known,

    {"kl": [...], "num_same_top": n, "reference_nll": x, "served_nll": x}

`kl` is the divergence of the served distribution from the reference, sum p ln(p / q) over the
vocabulary, in nats; `num_same_top` counts positions where both have the same likeliest
token; the two sums are of -ln of the probability of the token that the text goes on with.
What goes wrong is told as {"error": message}, and the exit code is 1.

Law: it ends when the program that started it does, which holds its standard input open.
Logits stay here: a few numbers a position leave the process.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO, cast

import structlog
import torch

from ranks.device import choose_device, choose_num_threads
from ranks.errors import RankError
from ranks.guard import stand_guard
from ranks.log_sink import LogSink
from ranks.models.native_weights import Weights
from ranks.models.registry import CausalLM, Checkpoint, choose_products, load_model, open_checkpoint
from ranks.shards import NoCollective, cut_shards
from ranks.step_inputs import LaneRows

_REFERENCE = "float32"
_BLOCK_SIZE = 16
# Rows whose distributions are compared at once, in double precision.
_ROWS = 64
_STDIN = 0
_MIN_WINDOW = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowQuality:
    """How the two distributions differ over the positions of one window."""

    kl: list[float]
    num_same_top: int
    reference_nll: float
    served_nll: float


class Alone:
    """A model that runs windows, one at a time and each from the start."""

    def __init__(self, model: CausalLM, num_positions: int) -> None:
        """Make room for windows of `num_positions`."""
        self._model = model
        self._block_table = list(range(-(-num_positions // _BLOCK_SIZE)))
        self._kv = model.new_kv_store(len(self._block_table), _BLOCK_SIZE)

    def logits(self, token_ids: Sequence[int], first: int) -> torch.Tensor:
        """Float32 logits [positions from `first` on, vocab]."""
        rows = LaneRows(
            lane_id=0,
            start=0,
            token_ids=list(token_ids),
            block_table=self._block_table,
            num_draws=len(token_ids) - first,
        )
        logits = self._model.forward([rows], self._kv, NoCollective())
        assert logits is not None, "one rank is its own leader"
        return logits


def compare(reference: torch.Tensor, served: torch.Tensor, next_ids: list[int]) -> WindowQuality:
    """Compare logits, each [rows, vocab]; `next_ids` are the tokens that the text goes on with."""
    kl: list[float] = []
    num_same_top, nll = 0, [0.0, 0.0]
    for begin in range(0, len(next_ids), _ROWS):
        part = slice(begin, begin + _ROWS)
        logs = [one[part].double().log_softmax(-1) for one in (reference, served)]
        kl += (logs[0].exp() * (logs[0] - logs[1])).sum(-1).tolist()
        num_same_top += int((logs[0].argmax(-1) == logs[1].argmax(-1)).sum())
        told = torch.tensor(next_ids[part], device=reference.device).unsqueeze(-1)
        for side, log in enumerate(logs):
            nll[side] -= float(log.gather(-1, told).sum())
    return WindowQuality(kl=kl, num_same_top=num_same_top, reference_nll=nll[0], served_nll=nll[1])


def load(
    checkpoint: Checkpoint, dtype: str, device: torch.device, weights: Weights = Weights.AUTO
) -> CausalLM:
    """Load the whole model.

    Raises:
        BadCheckpoint: The files cannot be used.
    """
    return load_model(
        checkpoint,
        shards=cut_shards(checkpoint.config.num_heads, rank=0, world_size=1),
        device=device,
        dtype=choose_products(dtype, device, checkpoint, weights=weights),
        weights=weights,
        on_progress=lambda _done, _total: None,
    )


def run(args: argparse.Namespace, order: dict[str, Any]) -> None:
    """Load both models and write a line for each window.

    Raises:
        RankError: The model or the device cannot be had.
        ValueError: The windows cannot be run.
    """
    windows, first = order["windows"], order["first"]
    torch.set_num_threads(choose_num_threads(args.threads, world_size=1))
    device = choose_device(args.device, rank=0, world_size=1)
    checkpoint = open_checkpoint(Path(args.model))
    check_windows(windows, first, checkpoint)
    longest = max(map(len, windows))
    reference = Alone(load(checkpoint, _REFERENCE, device), longest)
    served = Alone(load(checkpoint, args.dtype, device, Weights(args.weights)), longest)
    for window in windows:
        found = compare(
            reference.logits(window, first)[:-1],
            served.logits(window, first)[:-1],
            window[first + 1 :],
        )
        say(asdict(found))


def check_windows(windows: list[list[int]], first: int, checkpoint: Checkpoint) -> None:
    """See that every window fits the model and has something to compare.

    Raises:
        ValueError: Names what does not, and the limit.
    """
    config = checkpoint.config
    if not windows:
        raise ValueError("there is no window")
    for window in windows:
        if not first + _MIN_WINDOW <= len(window) <= config.context_length:
            raise ValueError(
                f"a window has {len(window)} tokens, allowed is {first + _MIN_WINDOW} to "
                f"{config.context_length}"
            )
        if not all(0 <= token_id < config.vocab_size for token_id in window):
            raise ValueError(f"a token id is not below {config.vocab_size}")


def say(line: dict[str, Any]) -> None:
    """Write a line of JSON that is read at once."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; a wrong one ends the process with its name, as argparse does."""
    parser = argparse.ArgumentParser(prog="python -m ranks.quality")
    parser.add_argument("--model", required=True, metavar="PATH")
    parser.add_argument("--dtype", default="auto", help="of the model as served")
    parser.add_argument("--weights", default="auto", help="likewise")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    return parser.parse_args(argv)


def main() -> int:
    """Read argv and one line of standard input; returns the exit code."""
    args = parse_args(sys.argv[1:])
    # Standard output is for the figures alone.
    structlog.configure(
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", LogSink(sys.stderr)))
    )
    order = json.loads(sys.stdin.buffer.readline())
    stand_guard(_STDIN)
    try:
        run(args, order)
    except (RankError, ValueError) as err:
        say({"error": str(err)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
