"""From the rows of a step to the arrays that a native model takes.

Laws: what is laid out depends on the rows alone; rows stay lane after lane, in the order of
positions. Nothing is looked up beyond the blocks that a lane has written once the step is done.

This runs between two steps, when neither core computes: it is one pass over the lanes, and what
depends on positions alone is made once and kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ranks.layers.rotary import Rotary
from ranks.native.parts import Floats, StepRows
from ranks.step_inputs import LaneRows, check_lane

# Positions whose rotation is made at once, and how many are kept at most.
_AT_ONCE, MAX_KEPT = 1_024, 32_768


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidOut:
    """The rows of a step, their token ids int64 [rows], and which of them draw, in order."""

    step: StepRows
    token_ids: npt.NDArray[np.int64]
    draw_rows: list[int]


class Rotations:
    """Cosine and sine of positions; those of the first `MAX_KEPT` are made once."""

    def __init__(self, rotary: Rotary, half_dim: int) -> None:
        """Begin with none; `half_dim` is half of a head."""
        self._rotary = rotary
        self._half_dim = half_dim
        self._cos, self._sin = (np.empty((0, half_dim), dtype=np.float32) for _ in range(2))

    def at(self, positions: npt.NDArray[np.int32]) -> tuple[Floats, Floats]:
        """Cosine and sine of int32 [rows], each [rows, half_dim]."""
        needed = int(positions.max()) + 1
        if needed > MAX_KEPT:
            return self._make(torch.from_numpy(positions))
        if needed > len(self._cos):
            made = self._make(torch.arange(len(self._cos), -(-needed // _AT_ONCE) * _AT_ONCE))
            self._cos = np.concatenate((self._cos, made[0]))
            self._sin = np.concatenate((self._sin, made[1]))
        return self._cos[positions], self._sin[positions]

    def _make(self, positions: torch.Tensor) -> tuple[Floats, Floats]:
        rotation = self._rotary.at(positions)
        cos, sin = rotation.cos, rotation.signed_sin
        half = slice(self._half_dim, None)
        return cos[:, 0, half].contiguous().numpy(), sin[:, 0, half].contiguous().numpy()


def lay_out(
    rows: Sequence[LaneRows],
    *,
    block_size: int,
    pool: npt.NDArray[np.float16],
    rotations: Rotations,
) -> LaidOut:
    """Lay out the rows of a step over a pool (`StepRows`).

    Raises:
        ValueError: A lane has no rows, or its block table is too short for them.
    """
    positions: list[int] = []
    token_ids: list[int] = []
    lane_rows, table_at = [0], [0]
    tables: list[int] = []
    draw_rows: list[int] = []
    for lane in rows:
        stop = check_lane(lane, block_size)
        positions.extend(range(lane.start, stop))
        token_ids.extend(lane.token_ids)
        lane_rows.append(len(positions))
        tables.extend(lane.block_table[: -(-stop // block_size)])
        table_at.append(len(tables))
        draw_rows.extend(range(len(positions) - lane.num_draws, len(positions)))
    placed = np.array(positions, dtype=np.int32)
    cos, sin = rotations.at(placed)
    step = StepRows(
        positions=placed,
        lane_rows=np.array(lane_rows, dtype=np.int32),
        tables=np.array(tables, dtype=np.int64) + 1,  # block 0 of the pool belongs to nobody
        table_at=np.array(table_at[:-1], dtype=np.int64),
        cos=cos,
        sin=sin,
        pool=pool,
    )
    return LaidOut(step=step, token_ids=np.array(token_ids, dtype=np.int64), draw_rows=draw_rows)
