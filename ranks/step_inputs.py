"""From the rows of a step to the tensors that a forward pass of torch takes.

Laws: what is built depends on the rows alone. The number of rows is padded to a
multiple at which the CPU's products give each row the same bits whatever else is
in the step (ADR 2); the padding never reaches the KV store or the logits. How rows are
grouped for attention is a matter of speed only: the bits are the same for any grouping.
A block of an image lies whole in its lane's rows, and each of its rows reaches to its end.

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
class LaneImage:
    """One image of a lane: `rows` [tokens, hidden] stand at positions `start` and on."""

    start: int
    rows: torch.Tensor

    @property
    def stop(self) -> int:
        """The position behind its last row."""
        return self.start + self.rows.shape[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRows:
    """The rows of one lane in one step.

    `token_ids` go to positions `start`, `start` + 1 and so on; `block_table` covers
    at least all of them. The logits of the last `num_draws` rows are wanted. `images` lie
    within these positions, in rising order; whatever `token_ids` holds there is not looked up.
    """

    lane_id: int
    start: int
    token_ids: Sequence[int]
    block_table: Sequence[int]
    num_draws: int
    images: tuple[LaneImage, ...] = ()


def check_lane(lane: LaneRows, block_size: int) -> int:
    """Return the position behind the rows of a lane.

    Raises:
        ValueError: It has no rows, its block table is too short for them, or an image does
            not lie within them.
    """
    stop = lane.start + len(lane.token_ids)
    if stop == lane.start or stop > len(lane.block_table) * block_size:
        raise ValueError(
            f"lane {lane.lane_id} has {stop - lane.start} rows up to position {stop}, "
            f"its {len(lane.block_table)} blocks hold {len(lane.block_table) * block_size}"
        )
    free = lane.start
    for image in lane.images:
        if not free <= image.start < image.stop <= stop:
            raise ValueError(
                f"lane {lane.lane_id} has an image at positions {image.start} to {image.stop}, "
                f"free are {free} to {stop}"
            )
        free = image.stop
    return stop


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionGroup:
    """Queries that attend in one product: as many from each lane, over as many positions.

    Shapes: `rows` int64 [lanes · queries], which rows of the step they are;
    `positions` int64 [lanes, queries]; `reach` int64 [lanes, queries], the last position
    that each sees: its own, or the end of its image; `block_ids` int64 [lanes · blocks],
    counted from 1, padded with the empty block to `num_positions` positions a lane.
    """

    num_lanes: int
    num_positions: int
    rows: torch.Tensor
    positions: torch.Tensor
    reach: torch.Tensor
    block_ids: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInputs:
    """The tensors of one step; rows lie lane after lane, padding rows last.

    Shapes: `token_ids` and `positions` int64 [padded rows]; `slots` int64 [rows], where
    keys and values go; `opened_blocks` int64 [blocks], those whose first position is
    written; `draw_rows` int64 [draws]. `images` holds the first row of each image, and its
    rows.
    """

    num_rows: int
    token_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    opened_blocks: torch.Tensor
    draw_rows: torch.Tensor
    groups: tuple[AttentionGroup, ...]
    images: tuple[tuple[int, torch.Tensor], ...]


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
        token_ids=on_device([one for lane in rows for one in _looked_up(lane)] + padding),
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
                reach=on_device([one for tile in part for one in tile.reach]).view(len(part), -1),
                block_ids=on_device([block for tile in part for block in tile.block_ids]),
            )
            for (_, num_positions), tiles in layout.tiles.items()
            for part in _split_group(tiles, num_positions)
        ),
        images=tuple(layout.images),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueryTile:
    """Queries of one lane that attend together."""

    rows: range
    positions: range
    reach: Sequence[int]
    block_ids: list[int]


class _Layout:
    """Collects the rows of a step, lane after lane."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self.positions: list[int] = []
        self.slots: list[int] = []
        self.opened_blocks: list[int] = []
        self.draw_rows: list[int] = []
        self.images: list[tuple[int, torch.Tensor]] = []
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
        self.images.extend(
            (first_row + image.start - lane.start, image.rows) for image in lane.images
        )
        reach = _find_reach(lane, positions)
        for begin in range(0, len(positions), _MAX_QUERIES):
            end = min(begin + _MAX_QUERIES, len(positions))
            tile = _QueryTile(
                rows=range(first_row + begin, first_row + end),
                positions=positions[begin:end],
                reach=reach[begin:end],
                block_ids=[],
            )
            self._add_tile(table, tile)

    def _add_tile(self, table: Sequence[int], tile: _QueryTile) -> None:
        stop = tile.reach[-1] + 1
        num_positions = _pad_positions(stop, self._block_size)
        num_blocks = num_positions // self._block_size
        # Not further than is written: what the table has beyond is not opened yet.
        tile.block_ids.extend(block + 1 for block in table[: -(-stop // self._block_size)])
        tile.block_ids.extend([EMPTY_BLOCK] * (num_blocks - len(tile.block_ids)))
        self.tiles.setdefault((len(tile.rows), num_positions), []).append(tile)


def _looked_up(lane: LaneRows) -> Sequence[int]:
    """The ids of a lane's rows; those of an image may be beyond the vocabulary, and are 0."""
    if not lane.images:
        return lane.token_ids
    token_ids = list(lane.token_ids)
    for image in lane.images:
        size = image.stop - image.start
        token_ids[image.start - lane.start : image.stop - lane.start] = [0] * size
    return token_ids


def _find_reach(lane: LaneRows, positions: range) -> Sequence[int]:
    """The last position that each row sees; it never falls from one row to the next."""
    if not lane.images:
        return positions
    reach = list(positions)
    for image in lane.images:
        length = image.stop - image.start
        reach[image.start - lane.start : image.stop - lane.start] = [image.stop - 1] * length
    return reach


def _pad_positions(count: int, block_size: int) -> int:
    """Round up, coarser for long contexts, so that lanes of like length share a group."""
    tile = max(POSITION_TILE, block_size)
    while count > tile * 8:
        tile *= 2
    return pad_count(count, tile)


def _split_group(tiles: list[_QueryTile], num_positions: int) -> list[list[_QueryTile]]:
    at_once = max(1, MAX_GROUP_POSITIONS // num_positions)
    return [tiles[begin : begin + at_once] for begin in range(0, len(tiles), at_once)]
