"""Set a job up for a lane: what is kept of its prompt, and the blocks for the rest.

Laws: a new job gets the blocks of its prompt, and leaves one free for each lane that
runs: replies grow as they go (`lanehost.lanes.growth`). One that had to park gets all
that it can ever need, or waits on: so no job is parked over and over. What the prompt
cache holds of a prompt is shared and not computed again; a prompt whose prefix another
lane is computing right now waits for that cut, which it would reach no sooner by itself; one
of which the disk has more than memory waits until that is in memory, or will not be.
What a set-up that must wait had taken is given back.
"""

from dataclasses import dataclass
from enum import Enum

from lanehost.admission.fetcher import Fetcher
from lanehost.cache.blocks import BlockPool
from lanehost.cache.prompt_cache import EntryKind, PromptCache
from lanehost.image_ids import cut_to_images
from lanehost.lanes.lane import Lane, LaneState
from lanehost.lanes.sequence import Sequence
from lanehost.lanes.table import LaneTable


class Wait(Enum):
    """Why nobody takes a lane now.

    NOBODY waits; no LANE is free; the head's OWN_LANE, which it gave up, is still being
    written; another lane computes its PREFIX; a FETCH brings it from the disk; the pool has no
    BLOCKS for it.
    """

    NOBODY = "nobody"
    LANE = "lane"
    OWN_LANE = "own lane"
    PREFIX = "prefix"
    FETCH = "fetch"
    BLOCKS = "blocks"


@dataclass(frozen=True, slots=True)
class Prepared:
    """The blocks that a sequence begins with, held for it; `num_cached_tokens` are in them."""

    block_ids: tuple[int, ...]
    num_cached_tokens: int


@dataclass(frozen=True, slots=True)
class AlreadyKept:
    """There is nothing to compute: all that a warm job could keep is kept already."""

    sequence: Sequence
    num_cached_tokens: int


def set_up(
    head: Sequence, lanes: LaneTable, blocks: BlockPool, cache: PromptCache, fetcher: Fetcher
) -> Prepared | AlreadyKept | Wait:
    """Hold all that the head of the line needs for a lane, or say what it waits for."""
    cached_ids = _borrow(head, blocks, cache)
    if fetcher.holds_up(head, len(cached_ids) * blocks.block_size):
        blocks.give_back(cached_ids)
        return Wait.FETCH
    filling = _lane_ahead(head, lanes, blocks, len(cached_ids))
    if filling is not None and cache.is_on:
        blocks.give_back(cached_ids)
        if not _adopt(filling, head, blocks, cache):
            return Wait.PREFIX
        cached_ids = _borrow(head, blocks, cache)
    if head.job.is_warm and _is_whole(cached_ids, head, blocks):
        blocks.give_back(cached_ids)
        return AlreadyKept(head, len(cached_ids) * blocks.block_size)
    num_new, headroom = _blocks_wanted(head, lanes, blocks)
    num_new -= len(cached_ids)
    new_ids = blocks.take(num_new) if cache.make_room(num_new + headroom) else None
    if new_ids is None:
        blocks.give_back(cached_ids)
        return Wait.BLOCKS
    return Prepared(cached_ids + new_ids, len(cached_ids) * blocks.block_size)


def already_kept(head: Sequence, blocks: BlockPool, cache: PromptCache) -> AlreadyKept | None:
    """Say so when a warm job has nothing to compute: it needs no lane, and so waits for none."""
    if not head.job.is_warm:
        return None
    cached_ids = _borrow(head, blocks, cache)
    blocks.give_back(cached_ids)
    if not _is_whole(cached_ids, head, blocks):
        return None
    return AlreadyKept(head, len(cached_ids) * blocks.block_size)


def _is_whole(cached_ids: tuple[int, ...], head: Sequence, blocks: BlockPool) -> bool:
    """Say whether these are all the blocks of a prompt that can be kept."""
    return len(cached_ids) == len(head.token_ids) // blocks.block_size


def _blocks_wanted(head: Sequence, lanes: LaneTable, blocks: BlockPool) -> tuple[int, int]:
    """Return the blocks to take, and those to leave free for lanes that grow."""
    if head.was_parked:
        return blocks.blocks_for(head.job.num_tokens), 0
    # With the position of the token that comes after them.
    needed = min(len(head.token_ids) + 1, head.job.num_tokens)
    return blocks.blocks_for(needed), sum(lane.is_running for lane in lanes)


def _borrow(head: Sequence, blocks: BlockPool, cache: PromptCache) -> tuple[int, ...]:
    """Hold the blocks of the longest kept prefix for the job itself, so they stay."""
    if head.job.is_cold:
        return ()
    borrow = cache.borrow(head.job.scope, head.identity_ids)
    if borrow is None:
        return ()
    blocks.share(borrow.block_ids)
    # Held by the job from here on: its entry may go now, even to make room for this very job.
    cache.report(borrow)
    return borrow.block_ids


def _lane_ahead(
    head: Sequence, lanes: LaneTable, blocks: BlockPool, num_cached_blocks: int
) -> Lane | None:
    """Return the lane that computes the most of this prompt, if that is more than is kept."""
    if head.job.is_cold:
        return None
    ahead = [lane for lane in lanes if lane.state is LaneState.PREFILL]
    best = max(ahead, key=lambda lane: _num_shared_blocks(head, lane, blocks), default=None)
    if best is None or _num_shared_blocks(head, best, blocks) <= num_cached_blocks:
        return None
    return best


def _adopt(filling: Lane, head: Sequence, blocks: BlockPool, cache: PromptCache) -> bool:
    """Keep the shared prefix of a lane that is still filling; False while it is not there yet."""
    num_tokens = _num_shared_blocks(head, filling, blocks) * blocks.block_size
    if filling.num_computed_tokens < num_tokens:
        return False
    # A mark: two prompts part here, so others may too.
    assert filling.sequence is not None, f"{filling!r} fills"
    prefix = filling.sequence.identity_ids[:num_tokens]
    cache.keep(head.job.scope, prefix, filling.block_ids, kind=EntryKind.MARK)
    return True


def _num_shared_blocks(head: Sequence, lane: Lane, blocks: BlockPool) -> int:
    """Whole blocks that both begin with; the head is left a token, and no part of an image."""
    if lane.job.scope != head.job.scope:
        return 0
    assert lane.sequence is not None, f"{lane!r} fills"
    ours, theirs, size = head.identity_ids, lane.sequence.identity_ids, blocks.block_size
    limit = min(len(ours) - 1, len(lane.prefill_ids)) // size
    num_shared = 0
    while num_shared < limit:
        block = slice(num_shared * size, (num_shared + 1) * size)
        if ours[block] != theirs[block]:
            break
        num_shared += 1
    return cut_to_images(ours, num_shared * size, step=size) // size
