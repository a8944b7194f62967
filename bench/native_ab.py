"""Time builds of the native library against each other: whole steps in one process, by turns.

    python -m ranks.native.build --target before.so     (then change a kernel)
    python -m ranks.native.build --target after.so
    PYTHONPATH=. python bench/native_ab.py before.so after.so --rows 1,4,16 --steps 100

All builds run over the same weights, keys and values, so what one leaves in the caches is there
for the next; their logits must have the same bits. Each figure is the median of the steps of a
build in milliseconds, with the fastest tenth behind it: of a machine that does other work as well,
that is the one to compare. `prompt` is a prompt of 256 tokens in one step.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import numpy as np
import torch

from lanehost.embedded import embedded_model_path
from ranks.kv_store import KvStore
from ranks.models.native_llama import NativeLlama
from ranks.models.registry import load_model, open_checkpoint
from ranks.native.library import INSTRUCTION_SETS, NativeEngine, NativeLibrary
from ranks.shards import NoCollective, cut_shards
from ranks.step_inputs import LaneRows

_START, _MAX_LANES, _BLOCK_SIZE, _PROMPT = 256, 64, 16, 256
_BLOCKS_OF_LANE = 24  # behind 256 positions some more


def _load(model: Path) -> NativeLlama:
    checkpoint = open_checkpoint(model)
    loaded = load_model(
        checkpoint,
        shards=cut_shards(checkpoint.config.num_heads, rank=0, world_size=1),
        device=torch.device("cpu"),
        dtype=torch.int8,
        on_progress=lambda _done, _total: None,
    )
    assert isinstance(loaded, NativeLlama)
    return loaded


def _in(library: Path, model: NativeLlama, name: str | None, num_threads: int) -> NativeLlama:
    """The same model, run by another build of the library."""
    found = NativeLibrary(library.absolute(), "")
    names = (name,) if name else INSTRUCTION_SETS
    found.instruction_set = next(one for one in names if found.can_run(one))
    parts = model.parts
    engine = NativeEngine(found, parts.shape, parts.layers, num_threads=num_threads)
    shards = cut_shards(model.config.num_heads, rank=0, world_size=1)
    return NativeLlama(
        model.config, shards=shards, parts=parts, engine=engine, num_threads=num_threads
    )


def _rows(
    num_lanes: int, start: int, num_tokens: int, random: np.random.Generator
) -> list[LaneRows]:
    return [
        LaneRows(
            lane_id=lane,
            start=start,
            token_ids=tuple(random.integers(0, 32_000, num_tokens).tolist()),
            block_table=tuple(range(lane * _BLOCKS_OF_LANE, (lane + 1) * _BLOCKS_OF_LANE)),
            num_draws=1,
        )
        for lane in range(num_lanes)
    ]


def _steps(
    models: Sequence[NativeLlama],
    kv: KvStore,
    num_steps: int,
    rows_of: Callable[[int], list[LaneRows]],
) -> list[list[dict[str, int]]]:
    """Nanoseconds of each build's steps by part, which were run by turns."""
    told: list[list[dict[str, int]]] = [[] for _ in models]
    order = list(range(len(models)))
    for step in range(num_steps):
        rows, found = rows_of(step), []
        for number in order if step % 2 else reversed(order):
            began_ns = time.perf_counter_ns()
            logits = models[number].forward(rows, kv, NoCollective())
            whole_ns = time.perf_counter_ns() - began_ns
            told[number].append({**models[number].parts_ns(), "step": whole_ns})
            found.append(logits)
        assert all(torch.equal(found[0], one) for one in found), "the builds give different bits"
    return told


def _say(name: str, libraries: Sequence[Path], told: Sequence[Sequence[dict[str, int]]]) -> None:
    for library, steps in zip(libraries, told, strict=True):
        words = []
        for part in steps[0]:
            ms = sorted(step[part] / 1e6 for step in steps)
            words.append(f"{part} {statistics.median(ms):.2f} ({ms[len(ms) // 10]:.2f})")
        click.echo(f"{name:>8}  {library.stem:<16}  {'  '.join(words)}")


@click.command(help=__doc__)
@click.argument("libraries", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--rows", default="1,4,8,16,prompt", show_default=True)
@click.option("--steps", default=60, show_default=True, help="Of each build; of prompts a tenth.")
@click.option("--threads", default=2, show_default=True)
@click.option("--set", "instruction_set", type=click.Choice(INSTRUCTION_SETS))
@click.option("--model", type=click.Path(exists=True, path_type=Path))
def main(
    libraries: tuple[Path, ...], rows: str, steps: int, threads: int, instruction_set: str | None,
    model: Path | None,
) -> None:  # fmt: skip
    """Measure and print."""
    torch.set_num_threads(1)
    random = np.random.default_rng(1)
    loaded = _load(model or embedded_model_path())
    models = [_in(library, loaded, instruction_set, threads) for library in libraries]
    kv = models[0].new_kv_store(_MAX_LANES * _BLOCKS_OF_LANE, _BLOCK_SIZE)
    drawn = random.standard_normal(kv.pool.shape[-3:], dtype=np.float32)
    kv.pool.copy_(torch.from_numpy(drawn).to(torch.float16).expand_as(kv.pool))
    for name in rows.split(","):
        if name == "prompt":
            told = _steps(models, kv, max(1, steps // 10), lambda _: _rows(1, 0, _PROMPT, random))
        else:
            lanes = int(name)
            told = _steps(
                models, kv, steps, lambda at, n=lanes: _rows(n, _START + at % 64, 1, random)
            )
        _say(name, libraries, told)


if __name__ == "__main__":
    main()
