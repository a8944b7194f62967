"""From the rows of a step to the numbers and arrays that a native model takes.

Laws: what is laid out depends on the rows alone; rows stay lane after lane, in the order of
positions. Nothing is looked up beyond the blocks that a lane has written once the step is done.

This runs between two steps, when neither core computes: it is one pass over the lanes, and what
depends on positions alone is made once and kept.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from ranks.layers.rotary import Rotary
from ranks.native.parts import Floats, StepRows, StepWords
from ranks.step_inputs import LaneRows, check_lane

# Positions whose rotation is made at once, and how many are kept at most.
_AT_ONCE, MAX_KEPT = 1_024, 32_768


class Rotations:
    """Cosine and sine of positions; those of the first `MAX_KEPT` are made once."""

    def __init__(self, rotary: Rotary, half_dim: int) -> None:
        """Begin with none; `half_dim` is half of a head."""
        self._rotary = rotary
        self._half_dim = half_dim
        self._cos, self._sin = (np.empty((0, half_dim), dtype=np.float32) for _ in range(2))

    def at(self, positions: npt.NDArray[np.int32]) -> tuple[Floats, Floats]:
        """Cosine and sine of int32 [rows], each [rows, half_dim]."""
        kept = self.up_to(int(positions.max()) + 1)
        if kept is None:
            return self._make(torch.from_numpy(positions))
        return kept[0][positions], kept[1][positions]

    def up_to(self, needed: int) -> tuple[Floats, Floats] | None:
        """Cosine and sine of so many positions or more, [positions, half_dim]; None beyond most.

        The same arrays until more are needed.
        """
        if needed > MAX_KEPT:
            return None
        if needed > len(self._cos):
            made = self._make(torch.arange(len(self._cos), -(-needed // _AT_ONCE) * _AT_ONCE))
            self._cos = np.concatenate((self._cos, made[0]))
            self._sin = np.concatenate((self._sin, made[1]))
        return self._cos, self._sin

    def _make(self, positions: torch.Tensor) -> tuple[Floats, Floats]:
        rotation = self._rotary.at(positions)
        cos, sin = rotation.cos, rotation.signed_sin
        half = slice(self._half_dim, None)
        return cos[:, 0, half].contiguous().numpy(), sin[:, 0, half].contiguous().numpy()


def lay_out(rows: Sequence[LaneRows], *, block_size: int) -> StepWords:
    """Lay out the rows of a step.

    Raises:
        ValueError: A lane has no rows, or its block table is too short for them.
    """
    words = StepWords(
        positions=[], token_ids=[], lane_rows=[0], table_at=[], draw_rows=[], tables=[]
    )
    for lane in rows:
        stop = check_lane(lane, block_size)
        words.positions.extend(range(lane.start, stop))
        words.token_ids.extend(lane.token_ids)
        num_rows = len(words.positions)
        words.lane_rows.append(num_rows)
        words.table_at.append(len(words.tables))
        # Block 0 of the pool belongs to nobody.
        words.tables.extend([block + 1 for block in lane.block_table[: -(-stop // block_size)]])
        words.draw_rows.extend(range(num_rows - lane.num_draws, num_rows))
    return words


def step_rows(words: StepWords, *, pool: npt.NDArray[np.float16], rotations: Rotations) -> StepRows:
    """The same as arrays, over a pool."""
    positions = np.array(words.positions, dtype=np.int32)
    cos, sin = rotations.at(positions)
    return StepRows(
        positions=positions,
        lane_rows=np.array(words.lane_rows, dtype=np.int32),
        tables=np.array(words.tables, dtype=np.int64),
        table_at=np.array(words.table_at, dtype=np.int64),
        cos=cos,
        sin=sin,
        pool=pool,
    )
