"""A prompt cache over a pool, and lanes that keep in it as the engine does."""

from lanehost.cache.blocks import BlockPool
from lanehost.cache.prompt_cache import EntryKind, PromptCache

SIZE = 4


def make_cache(num_blocks=16):
    blocks = BlockPool(num_blocks=num_blocks, block_size=SIZE)
    return PromptCache(blocks), blocks


def tokens(count, *, first=0):
    return tuple(range(first, first + count))


def keep(cache, blocks, token_ids, *, scope="s", kind=EntryKind.STATE):
    """Compute these tokens in a lane of their own, keep them, and end the lane."""
    block_ids = blocks.take(blocks.blocks_for(len(token_ids)))
    entry = cache.keep(scope, token_ids, block_ids, kind=kind)
    blocks.give_back(block_ids)
    return entry


def begin(cache, blocks, token_ids, *, scope="s"):
    """Give a lane its blocks: kept ones first, then new ones; None when there is no room."""
    shared = ()
    borrow = cache.borrow(scope, token_ids)
    if borrow is not None:
        shared = borrow.block_ids
        blocks.share(shared)
        cache.report(borrow)
    num_new = blocks.blocks_for(len(token_ids)) - len(shared)
    if not cache.make_room(num_new):
        blocks.give_back(shared)
        return None
    return shared + blocks.take(num_new)


def run(cache, blocks, token_ids, *, scope="s", marks=()):
    """Run a lane to its end: keep it at its marks, then all of it; returns the last entry."""
    block_ids = begin(cache, blocks, token_ids, scope=scope)
    for mark in marks:
        cache.keep(scope, token_ids[:mark], block_ids, kind=EntryKind.MARK)
    entry = cache.keep(scope, token_ids, block_ids)
    blocks.give_back(block_ids)
    return entry
