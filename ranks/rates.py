"""`python -m ranks.rates`: what a step of a model reads and multiplies, and how fast that goes.

Loads the model on one rank and writes one line of JSON to standard output:

    {"threads": n, "weights": {part: {"bytes": n, "macs": n}}, "kv_bytes_per_position": n,
     "read_bytes_per_s": {"1": x, "n": x}, "ops_per_s": {part: x}}

`weights` are those of all layers (`products`) and of the `head`; a `mac` is one multiplication
and one addition for a row. `ops_per_s` counts both, with all threads; it has what the native
library multiplies, and nothing for a model in float32. What goes wrong is told as
{"error": message}, and the exit code is 1.

Law: it ends when the program that started it does, which holds its standard input open.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

import structlog
import torch

from ranks.device import choose_num_threads
from ranks.errors import RankError
from ranks.guard import stand_guard
from ranks.log_sink import LogSink
from ranks.models.native_llama import NativeLlama, NativeParts
from ranks.models.registry import choose_products, load_model, open_checkpoint
from ranks.native.library import NativeLibrary, NoLibrary, open_library
from ranks.native.packing import PackedMatrix
from ranks.native.parts import LayerParts
from ranks.native.speed import measure_products, measure_reading
from ranks.shards import cut_shards
from ranks.weights.model_config import ModelConfig

_STDIN = 0
# Memory that is read is as large as the weights, so that a cache holds as much of it.
_LEAST_READ, _MOST_READ = 16 << 20, 1 << 30
_BLOCK_SIZE = 16


def tell_rates(model_path: Path, dtype_name: str, num_threads: int) -> dict[str, Any]:
    """Load the model and measure.

    Raises:
        RankError: The model cannot be had.
        NoLibrary: There is no native library, which measures.
    """
    library, device = open_library(), torch.device("cpu")
    checkpoint = open_checkpoint(model_path)
    dtype = choose_products(dtype_name, device, checkpoint)
    if dtype == NativeLlama.dtype:
        model = load_model(
            checkpoint,
            shards=cut_shards(checkpoint.config.num_heads, rank=0, world_size=1),
            device=device,
            dtype=dtype,
            on_progress=lambda _done, _total: None,
        )
        assert isinstance(model, NativeLlama)
        told = _tell_native(model, library, num_threads)
    else:
        told = _tell_plain(checkpoint.config, dtype)
    num_bytes = sum(one["bytes"] for one in told["weights"].values())
    num_read = max(_LEAST_READ, min(num_bytes, _MOST_READ))
    reading = {
        str(count): measure_reading(library, num_read, count) for count in sorted({1, num_threads})
    }
    return {"threads": num_threads, **told, "read_bytes_per_s": reading}


def _tell_native(model: NativeLlama, library: NativeLibrary, num_threads: int) -> dict[str, Any]:
    parts: NativeParts = model.parts
    products = [matrix for layer in parts.layers for matrix in _matrices(layer)]
    return {
        "weights": {
            "products": _tell_weights(products),
            "head": _tell_weights([parts.head]),
        },
        "kv_bytes_per_position": model.kv_bytes_per_block(_BLOCK_SIZE) // _BLOCK_SIZE,
        "ops_per_s": {
            "products": measure_products(library, parts.layers[0].gate, num_threads),
            "head": measure_products(library, parts.head, num_threads, is_fine=True),
        },
    }


def _tell_plain(config: ModelConfig, dtype: torch.dtype) -> dict[str, Any]:
    """Of a model in torch, by its sizes; biases and norms are left out."""
    wide = config.num_heads * config.head_dim
    narrow = config.num_kv_heads * config.head_dim
    of_layer = config.hidden_size * (2 * wide + 2 * narrow + 3 * config.intermediate_size)
    counts = {
        "products": config.num_layers * of_layer,
        "head": config.hidden_size * config.vocab_size,
    }
    return {
        "weights": {
            part: {"bytes": count * dtype.itemsize, "macs": count} for part, count in counts.items()
        },
        "kv_bytes_per_position": 2 * config.num_layers * narrow * dtype.itemsize,
        "ops_per_s": {},
    }


def _matrices(layer: LayerParts) -> Iterator[PackedMatrix]:
    yield from (*layer.qkv, *layer.output, layer.gate, layer.up, *layer.down)


def _tell_weights(matrices: list[PackedMatrix]) -> dict[str, int]:
    return {
        "bytes": sum(matrix.data.nbytes for matrix in matrices),
        "macs": sum(matrix.outputs * matrix.inputs for matrix in matrices),
    }


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; a wrong one ends the process with its name, as argparse does."""
    parser = argparse.ArgumentParser(prog="python -m ranks.rates")
    parser.add_argument("--model", required=True, metavar="PATH")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--tp", type=int, default=1, help="ranks, each with its threads")
    parser.add_argument("--threads", type=int, help="of one rank")
    return parser.parse_args(argv)


def main() -> int:
    """Measure and write one line; returns the exit code."""
    args = parse_args(sys.argv[1:])
    structlog.configure(
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", LogSink(sys.stderr)))
    )
    stand_guard(_STDIN)
    num_threads = args.tp * choose_num_threads(args.threads, world_size=args.tp)
    try:
        told = tell_rates(Path(args.model), args.dtype, num_threads)
    except (RankError, NoLibrary, ValueError) as err:
        told = {"error": str(err)}
    sys.stdout.write(json.dumps(told) + "\n")
    return int("error" in told)


if __name__ == "__main__":
    sys.exit(main())
