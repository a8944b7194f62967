"""The pure rooms of the engine, made with few words."""

from lanehost.admission.line import Line
from lanehost.cache.blocks import BlockPool
from lanehost.cache.prompt_cache import PromptCache
from lanehost.lanes.sequence import Sequence
from lanehost.lanes.table import LaneTable
from lanehost.settings import LineSettings

Rooms = tuple[Line, LaneTable, BlockPool, PromptCache]


def make_rooms(*, num_lanes: int = 2, num_blocks: int = 4, is_on: bool = True) -> Rooms:
    blocks = BlockPool(num_blocks=num_blocks, block_size=4)
    cache = PromptCache(blocks, is_on=is_on)
    return Line(LineSettings()), LaneTable(num_lanes, block_size=4), blocks, cache


def join(line: Line, sequence: Sequence) -> Sequence:
    """Do what the door does."""
    line.promise(sequence.job.scope)
    line.join(sequence)
    return sequence


def keep(rooms: Rooms, token_ids: tuple[int, ...], *, scope: str = "") -> tuple[int, ...]:
    """Let the cache alone hold the state of these tokens."""
    *_, blocks, cache = rooms
    block_ids = blocks.take(blocks.blocks_for(len(token_ids)))
    assert block_ids is not None
    cache.keep(scope, token_ids, block_ids)
    blocks.give_back(block_ids)
    return block_ids
