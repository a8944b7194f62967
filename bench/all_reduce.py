"""One all-reduce, and one decode step of the embedded model on two ranks: gloo and shared memory.

    python bench/all_reduce.py [--rows 1 4 16] [--dtype int8|float32] [--seconds 3]

Both kinds of group join the same two processes, and are measured in turn, a few calls each
time: what else the machine does falls on both. Medians, in microseconds, and in brackets the
tenth part of calls that took least: on a busy machine those that were left in peace.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.distributed import FileStore

from lanehost.embedded import embedded_model_path
from ranks.abort import Abort
from ranks.kv_store import KvStore
from ranks.models.registry import CausalLM, load_model, open_checkpoint
from ranks.process_group import Group, form_group
from ranks.shards import Place, cut_shards
from ranks.step_inputs import LaneRows

KINDS = ("gloo", "shm")
HIDDEN = 576
CPU = torch.device("cpu")
CONTEXT = 128
BLOCK = 16


def main() -> None:
    """Start both ranks, or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--dtype", choices=("int8", "float32"), default="int8")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        measure(args)
        return
    with tempfile.TemporaryDirectory() as folder:
        store = ("--store", str(Path(folder) / "store"))
        ranks = [
            subprocess.Popen((sys.executable, *sys.argv, *store, "--rank", str(rank)))  # noqa: S603
            for rank in (0, 1)
        ]
        sys.exit(max(rank.wait() for rank in ranks))


def measure(args: argparse.Namespace) -> None:
    """Measure as one of two ranks."""
    torch.set_num_threads(1)
    groups = {kind: join(f"{args.store}-{kind}", args.rank, kind) for kind in KINDS}
    for rows in args.rows:
        tensor = torch.zeros(rows, HIDDEN)
        report(args, groups, f"all-reduce {rows} x {HIDDEN}", lambda g, t=tensor: g.all_reduce(t))
    checkpoint = open_checkpoint(embedded_model_path())
    model = load_model(
        checkpoint,
        shards=cut_shards(checkpoint.config.num_heads, rank=args.rank, world_size=2),
        device=CPU,
        dtype=getattr(torch, args.dtype),
        on_progress=lambda _done, _total: None,
    )
    for rows in args.rows:
        kv = model.new_kv_store(rows * CONTEXT // BLOCK, BLOCK)
        report(
            args, groups, f"step of {rows}, {model.products}",
            lambda g, r=rows, k=kv: decode(model, k, r, g),
        )  # fmt: skip


def join(store: str, rank: int, kind: str) -> Group:
    """Join a group of a kind."""
    return form_group(
        FileStore(store, 2),
        Place(epoch=1, rank=rank, world_size=2),
        collective=kind,
        device=CPU,
        timeout_s=60,
        abort=Abort(),
    )


def decode(model: CausalLM, kv: KvStore, num_rows: int, group: Group) -> None:
    """Run one row of each lane, and let the leader tell what it drew, as a rank does."""
    width = CONTEXT // BLOCK
    rows = [
        LaneRows(
            lane_id=lane,
            start=CONTEXT - 1,
            token_ids=[lane + 40],
            block_table=list(range(lane * width, (lane + 1) * width)),
            num_draws=1,
        )
        for lane in range(num_rows)
    ]
    logits = model.forward(rows, kv, group)
    ids = torch.zeros(num_rows, dtype=torch.int64) if logits is None else logits.argmax(dim=-1)
    group.broadcast_ids(ids)


def report(
    args: argparse.Namespace, groups: dict[str, Group], what: str, call: Callable[[Group], object]
) -> None:
    """Call in turn until the time is over, and print what it took on the leader."""
    took: dict[str, list[float]] = {kind: [] for kind in groups}
    goes_on, until = True, time.perf_counter() + args.seconds
    while goes_on:
        for kind, group in groups.items():
            for _ in range(8):
                began = time.perf_counter()
                call(group)
                took[kind].append(time.perf_counter() - began)
        # The leader's clock counts.
        told = torch.tensor([int(time.perf_counter() < until)])
        goes_on = bool(groups["shm"].broadcast_ids(told)[0])
    if args.rank == 0:
        gloo, shm = (Spread(took[kind]) for kind in KINDS)
        print(f"{what:26} gloo {gloo}  shm {shm}  ratio {gloo.median / shm.median:.2f}")


class Spread:
    """The median and the tenth percentile, in microseconds."""

    def __init__(self, took: list[float]) -> None:
        self.median = statistics.median(took) * 1e6
        self.least = statistics.quantiles(took, n=10)[0] * 1e6

    def __str__(self) -> str:
        return f"{self.median:.0f} ({self.least:.0f})"


if __name__ == "__main__":
    main()
