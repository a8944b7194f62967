"""What a step reads and multiplies, how fast this machine does both, and the floor that follows.

The floor of a part is the longer of two times: that of reading what the step must read of it
once, and that of its products, each at the best rate that this machine has shown in the same
run. No step can be faster; what is in no floor (norms, rotation, softmax, exchange, sampling)
is taken to cost nothing.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from lanehost.errors import StartupFailed
from lanehost.settings import RankGroupSettings

RATES_COMMAND = (sys.executable, "-m", "ranks.rates")
_TIMEOUT_S = 600.0
_NS = 1e9
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights of one part of a step: bytes, and products of one row."""

    num_bytes: int
    num_macs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a model reads and multiplies, and how fast that can go with `num_threads` in all.

    `read_bytes_per_s` is by number of threads; `ops_per_s` has what the native library multiplies.
    """

    num_threads: int
    weights: Mapping[str, Weights]
    kv_bytes_per_position: int
    read_bytes_per_s: Mapping[int, float]
    ops_per_s: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """What one kind of step does: `num_positions` are those whose keys and values it reads."""

    num_rows: int
    num_draws: int
    num_positions: int


def measure_rates(
    ranks: RankGroupSettings, command: tuple[str, ...] = RATES_COMMAND
) -> Rates | None:
    """Measure, in a process of its own; None for a device that is not the CPU.

    Raises:
        StartupFailed: The model cannot be used.
    """
    if ranks.device not in ("cpu", "auto"):
        return None
    threads = () if ranks.num_threads is None else ("--threads", str(ranks.num_threads))
    model = ("--model", str(ranks.model_path.absolute()))
    how = ("--dtype", ranks.dtype, "--tp", str(ranks.tp))
    # It ends when its standard input does: while this process lives, that is held open.
    read_end, write_end = os.pipe()
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            [*command, *model, *how, *threads],
            stdin=read_end,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    finally:
        os.close(read_end)
        os.close(write_end)
    if not done.stdout.endswith("\n"):
        raise StartupFailed(f"what measures the machine ended with exit code {done.returncode}")
    return read_rates(done.stdout)


def read_rates(text: str) -> Rates:
    """Read what `ranks.rates` wrote.

    Raises:
        StartupFailed: It tells an error.
    """
    told = json.loads(text)
    if "error" in told:
        raise StartupFailed(told["error"])
    return Rates(
        num_threads=told["threads"],
        weights={
            part: Weights(num_bytes=one["bytes"], num_macs=one["macs"])
            for part, one in told["weights"].items()
        },
        kv_bytes_per_position=told["kv_bytes_per_position"],
        read_bytes_per_s={int(count): rate for count, rate in told["read_bytes_per_s"].items()},
        ops_per_s=told["ops_per_s"],
    )


def best_of(before: Rates | None, after: Rates | None) -> Rates | None:
    """The better of two measurements around a run: other work can only slow one down."""
    if before is None or after is None:
        return None
    return replace(
        before,
        read_bytes_per_s=_greater(before.read_bytes_per_s, after.read_bytes_per_s),
        ops_per_s=_greater(before.ops_per_s, after.ops_per_s),
    )


def _greater(one: Mapping[_Key, float], other: Mapping[_Key, float]) -> dict[_Key, float]:
    return {key: max(rate, other[key]) for key, rate in one.items()}


def floor_ns(rates: Rates, work: StepWork) -> dict[str, float]:
    """Nanoseconds that each part takes at least; what is not in it is taken as nothing."""
    reading = rates.read_bytes_per_s[rates.num_threads]
    rows = {"products": work.num_rows, "head": work.num_draws}
    floor = {"attention": work.num_positions * rates.kv_bytes_per_position / reading * _NS}
    for part, weights in rates.weights.items():
        rate = rates.ops_per_s.get(part)
        reading_ns = weights.num_bytes / reading * _NS
        product_ns = 2 * weights.num_macs * rows[part] / rate * _NS if rate else 0.0
        floor[part] = max(reading_ns, product_ns)
    return floor
