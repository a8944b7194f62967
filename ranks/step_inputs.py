"""From the rows of a step to the tensors that a forward pass of torch takes.

Laws: what is built depends on the rows alone. The number of rows is padded to a
multiple at which the CPU's products give each row the same bits whatever else is
in the step (ADR 2); the padding never reaches the KV store or the logits. How rows are
grouped for attention is a matter of speed only: the bits are the same for any grouping.

Blocks are counted from 1 here: block 0 of the store is empty for ever and pads tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ranks.tiles import POSITION_TILE, check_block_size, pad_count, row_multiple

EMPTY_BLOCK = 0
# Queries of a prompt that attend together; more would spill their scores out of the cache.
_MAX_QUERIES = 128
# Gathered positions of a group; more would spill its keys and values.
MAX_GROUP_POSITIONS = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRows:
    """The rows of one lane in one step.

    `token_ids` go to positions `start`, `start` + 1 and so on; `block_table` covers
    at least all of them. The logits of the last `num_draws` rows are wanted.
    """

    lane_id: int
    start: int
    token_ids: Sequence[int]
    block_table: Sequence[int]
    num_draws: int


def check_lane(lane: LaneRows, block_size: int) -> int:
    """Return the position behind the rows of a lane.

    Raises:
        ValueError: It has no rows, or its block table is too short for them.
    """
    stop = lane.start + len(lane.token_ids)
    if stop == lane.start or stop > len(lane.block_table) * block_size:
        raise ValueError(
            f"lane {lane.lane_id} has {stop - lane.start} rows up to position {stop}, "
            f"its {len(lane.block_table)} blocks hold {len(lane.block_table) * block_size}"
        )
    return stop


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionGroup:
    """Queries that attend in one product: as many from each lane, over as many positions.

    Shapes: `rows` int64 [lanes · queries], which rows of the step they are;
    `positions` int64 [lanes, queries]; `block_ids` int64 [lanes · blocks], counted from
    1, padded with the empty block to `num_positions` positions a lane.
    """

    num_lanes: int
    num_positions: int
    rows: torch.Tensor
    positions: torch.Tensor
    block_ids: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInputs:
    """The tensors of one step; rows lie lane after lane, padding rows last.

    Shapes: `token_ids` and `positions` int64 [padded rows]; `slots` int64 [rows], where
    keys and values go; `opened_blocks` int64 [blocks], those whose first position is
    written; `draw_rows` int64 [draws].
    """

    num_rows: int
    token_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    opened_blocks: torch.Tensor
    draw_rows: torch.Tensor
    groups: tuple[AttentionGroup, ...]


def build_inputs(rows: Sequence[LaneRows], *, device: torch.device, block_size: int) -> StepInputs:
    """Lay out the rows of a step; logits come in the order of the rows that draw.

    Raises:
        ValueError: A block table is too short for its lane's rows, a lane has no rows, or
            the block size does not fit the tiles.
    """
    check_block_size(block_size)
    layout = _Layout(block_size)
    for lane in rows:
        layout.add(lane)
    num_padded = pad_count(len(layout.positions), row_multiple(device))
    padding = [0] * (num_padded - len(layout.positions))

    def on_device(values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    return StepInputs(
        num_rows=len(layout.positions),
        token_ids=on_device([one for lane in rows for one in lane.token_ids] + padding),
        positions=on_device(layout.positions + padding),
        slots=on_device(layout.slots),
        opened_blocks=on_device(layout.opened_blocks),
        draw_rows=on_device(layout.draw_rows),
        groups=tuple(
            AttentionGroup(
                num_lanes=len(part),
                num_positions=num_positions,
                rows=on_device([row for tile in part for row in tile.rows]),
                positions=on_device([one for tile in part for one in tile.positions]).view(
                    len(part), -1
                ),
                block_ids=on_device([block for tile in part for block in tile.block_ids]),
            )
            for (_, num_positions), tiles in layout.tiles.items()
            for part in _split_group(tiles, num_positions)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueryTile:
    """Queries of one lane that attend together."""

    rows: range
    positions: range
    block_ids: list[int]


class _Layout:
    """Collects the rows of a step, lane after lane."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self.positions: list[int] = []
        self.slots: list[int] = []
        self.opened_blocks: list[int] = []
        self.draw_rows: list[int] = []
        # By how many queries and how many padded positions each lane has in the group.
        self.tiles: dict[tuple[int, int], list[_QueryTile]] = {}

    def add(self, lane: LaneRows) -> None:
        size, table = self._block_size, lane.block_table
        first_row, stop = len(self.positions), check_lane(lane, size)
        positions = range(lane.start, stop)
        self.positions.extend(positions)
        self.slots.extend((table[at // size] + 1) * size + at % size for at in positions)
        self.opened_blocks.extend(
            table[index] + 1 for index in range(-(-lane.start // size), -(-stop // size))
        )
        num_rows = len(self.positions)
        self.draw_rows.extend(range(num_rows - lane.num_draws, num_rows))
        for begin in range(0, len(positions), _MAX_QUERIES):
            part = positions[begin : begin + _MAX_QUERIES]
            rows = range(first_row + begin, first_row + begin + len(part))
            self._add_tile(table, rows, part)

    def _add_tile(self, table: Sequence[int], rows: range, positions: range) -> None:
        num_positions = _pad_positions(positions.stop, self._block_size)
        num_blocks = num_positions // self._block_size
        # Not further than is written: what the table has beyond is not opened yet.
        block_ids = [block + 1 for block in table[: -(-positions.stop // self._block_size)]]
        block_ids += [EMPTY_BLOCK] * (num_blocks - len(block_ids))
        self.tiles.setdefault((len(rows), num_positions), []).append(
            _QueryTile(rows=rows, positions=positions, block_ids=block_ids)
        )


def _pad_positions(count: int, block_size: int) -> int:
    """Round up, coarser for long contexts, so that lanes of like length share a group."""
    tile = max(POSITION_TILE, block_size)
    while count > tile * 8:
        tile *= 2
    return pad_count(count, tile)


def _split_group(tiles: list[_QueryTile], num_positions: int) -> list[list[_QueryTile]]:
    at_once = max(1, MAX_GROUP_POSITIONS // num_positions)
    return [tiles[begin : begin + at_once] for begin in range(0, len(tiles), at_once)]
