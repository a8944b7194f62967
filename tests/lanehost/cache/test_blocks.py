from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lanehost.cache.blocks import BlockFault, BlockPool


def make_pool():
    return BlockPool(num_blocks=3, block_size=4)


def test_what_cannot_be_taken_whole_is_not_taken_at_all():
    pool = make_pool()
    assert pool.take(4) is None
    assert pool.num_free == 3


def test_a_block_given_back_by_its_last_holder_is_free():
    pool = make_pool()
    taken = pool.take(2)
    pool.share(taken)
    pool.give_back(taken)
    assert pool.num_free == 1
    pool.give_back(taken)
    assert pool.num_free == 3


@pytest.mark.parametrize("call", ["share", "give_back"])
def test_a_free_block_cannot_be_shared_or_given_back_and_nothing_changes(call):
    pool = make_pool()
    first, second = pool.take(2)
    pool.give_back((second,))
    with pytest.raises(BlockFault):
        getattr(pool, call)((first, second))
    assert (pool.num_holders(first), pool.num_holders(second), pool.num_free) == (1, 0, 2)


@pytest.mark.parametrize("call", ["share", "give_back"])
def test_a_block_named_twice_in_one_call_is_a_fault(call):
    pool = make_pool()
    taken = pool.take(1)
    with pytest.raises(BlockFault):
        getattr(pool, call)(taken * 2)
    assert pool.num_holders(taken[0]) == 1


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2)])
def test_blocks_for_rounds_up(tokens, blocks):
    assert make_pool().blocks_for(tokens) == blocks


def test_repr_shows_the_state():
    pool = make_pool()
    pool.take(1)
    assert repr(pool) == "<BlockPool 2/3 free>"
    assert (pool.num_blocks, pool.block_size) == (3, 4)


class BlockPoolMachine(RuleBasedStateMachine):
    """The pool against a plain list of who holds what."""

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(num_blocks=16, block_size=4)
        self.held: list[tuple[int, ...]] = []

    @rule(num_blocks=st.integers(0, 20))
    def take(self, num_blocks):
        free_before = self.pool.num_free
        out = {block for holder in self.held for block in holder}
        taken = self.pool.take(num_blocks)
        assert (taken is None) == (num_blocks > free_before)
        if taken is not None:
            assert len(taken) == num_blocks
            assert not out.intersection(taken)
            self.held.append(taken)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def share(self, data):
        holder = data.draw(st.sampled_from(self.held))
        part = holder[: data.draw(st.integers(0, len(holder)))]
        self.pool.share(part)
        self.held.append(part)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data):
        index = data.draw(st.integers(0, len(self.held) - 1))
        self.pool.give_back(self.held.pop(index))

    @invariant()
    def a_block_is_free_exactly_when_it_has_no_holder(self):
        holders = Counter(block for holder in self.held for block in holder)
        assert [self.pool.num_holders(block) for block in range(16)] == [
            holders[block] for block in range(16)
        ]
        assert self.pool.num_free == 16 - len(holders)


TestBlockPool = BlockPoolMachine.TestCase
