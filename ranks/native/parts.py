"""What a native model is made of, and what one step of it takes; the data of both engines.

Arrays are numpy's, contiguous, float32 unless said otherwise; nobody checks them again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ranks.native.packing import PackedMatrix
from ranks.noise import DrawnRow
from ranks.shards import Exchange

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes of this rank's part.

    `head_parts` and `mlp_parts` hold the query heads and the MLP columns of each held shard.
    """

    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    head_parts: tuple[int, ...]
    mlp_parts: tuple[int, ...]
    norm_eps: float
    score_scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerParts:
    """The weights of one layer; `output` and `down` apart for each held shard."""

    input_norm: Floats
    mlp_norm: Floats
    query_norm: Floats | None
    key_norm: Floats | None
    qkv: tuple[PackedMatrix, PackedMatrix, PackedMatrix]
    qkv_bias: Floats | None
    output: tuple[PackedMatrix, ...]
    output_bias: Floats | None
    gate: PackedMatrix
    gate_bias: Floats | None
    up: PackedMatrix
    up_bias: Floats | None
    down: tuple[PackedMatrix, ...]
    down_bias: Floats | None
    window: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRows:
    """The rows of a step, lane after lane, those of a lane in the order of positions.

    Shapes: `positions` int32 [rows]; `lane_rows` int32 [lanes + 1], the first row of each
    lane and the number of rows; `tables` int64, the blocks of all lanes; `table_at` int64
    [lanes], where a lane's blocks begin; `cos` and `sin` [rows, head_dim / 2]; `pool`
    float16 [layers, keys and values, KV heads, blocks, block_size, head_dim].

    A block of keys is laid out as [head_dim, block_size], whatever the shape says.
    """

    positions: npt.NDArray[np.int32]
    lane_rows: npt.NDArray[np.int32]
    tables: npt.NDArray[np.int64]
    table_at: npt.NDArray[np.int64]
    cos: Floats
    sin: Floats
    pool: npt.NDArray[np.float16]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWords:
    """The rows of a step in plain numbers, and which of them draw, in order; see `StepRows`.

    Whole numbers only, so that a step costs Python little: it runs between two steps, with cold
    caches, while no core computes.
    """

    positions: list[int]
    token_ids: list[int]
    lane_rows: list[int]
    table_at: list[int]
    draw_rows: list[int]
    tables: list[int]

    def flat(self) -> list[int]:
        """All of it, one after the other, as forward.cpp reads it."""
        return [
            *(len(self.positions), len(self.table_at), len(self.draw_rows), len(self.tables)),
            *self.positions, *self.token_ids, *self.lane_rows, *self.table_at, *self.draw_rows,
            *self.tables,
        ]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepFrame:
    """What a step needs beside its rows, as long as the pool is the same.

    Shapes: `table` uint8 [token ids, bytes of a row of Q8_0]; `cos` and `sin`, by position,
    [positions, head_dim / 2]; `norm` [hidden]; `pool` as in `StepRows`.
    """

    table: npt.NDArray[np.uint8]
    cos: Floats
    sin: Floats
    norm: Floats
    head: PackedMatrix
    pool: npt.NDArray[np.float16]


class Engine(Protocol):
    """Runs a native model; two engines give the same bits.

    `can_exchange` says whether `run` takes an exchange.
    """

    name: str
    can_exchange: bool

    def run(self, step: StepRows, x: Floats, exchange: Exchange | None = None) -> None:
        """Run all layers on x [rows, hidden], in place.

        Without an exchange this is for a rank that holds all shards; with one the shares of all
        ranks are added in it, half a layer after the other.
        """
        ...

    def attention_half(self, step: StepRows, layer: int, x: Floats) -> Floats:
        """This rank's share of the attention's sum over shards: [rows, hidden]."""
        ...

    def mlp_half(self, layer: int, x: Floats) -> Floats:
        """This rank's share of the MLP's sum over shards: [rows, hidden]."""
        ...

    def add_total(self, total: Floats, bias: Floats | None, x: Floats) -> None:
        """Add what a half gave, summed over all ranks, to x [rows, hidden], in place."""
        ...

    def head(self, x: Floats, norm: Floats, weight: PackedMatrix) -> Floats:
        """Norm and project [rows, hidden] → [rows, outputs of the weight].

        What is returned holds until the next call.
        """
        ...

    @property
    def forward(self) -> Callable[[StepFrame, StepWords, Exchange | None], Floats] | None:
        """Run a step whole: the same bits as the table, `run` and `head`; None where it cannot."""
        ...

    @property
    def draw_rows(self) -> Callable[[Floats, Sequence[DrawnRow]], list[int]] | None:
        """Do what `ranks.sampler.draw_rows` does, over logits [n, vocab]; None where it cannot."""
        ...

    def parts_ns(self) -> dict[str, int]:
        """Nanoseconds of each part of the last step, where they are known."""
        ...

    def num_stages(self) -> int:
        """Stages that were run so far; from any thread, also while one runs."""
        ...
