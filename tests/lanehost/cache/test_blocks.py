import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lanehost.cache.blocks import BlockFault, BlockPool


def test_what_cannot_be_taken_whole_is_not_taken_at_all():
    pool = BlockPool(num_blocks=3, block_size=4)
    assert pool.take(4) is None
    assert pool.num_free == 3


def test_a_block_given_back_twice_is_a_fault_and_changes_nothing():
    pool = BlockPool(num_blocks=3, block_size=4)
    taken = pool.take(2)
    assert taken is not None
    pool.give_back(taken)
    with pytest.raises(BlockFault):
        pool.give_back(taken[:1])
    assert pool.num_free == 3


def test_a_block_named_twice_in_one_return_is_a_fault():
    pool = BlockPool(num_blocks=3, block_size=4)
    taken = pool.take(1)
    assert taken is not None
    with pytest.raises(BlockFault):
        pool.give_back(taken * 2)
    assert pool.num_free == 2


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2)])
def test_blocks_for_rounds_up(tokens, blocks):
    assert BlockPool(num_blocks=3, block_size=4).blocks_for(tokens) == blocks


def test_repr_shows_the_state():
    pool = BlockPool(num_blocks=3, block_size=4)
    pool.take(1)
    assert repr(pool) == "<BlockPool 2/3 free>"


class BlockPoolMachine(RuleBasedStateMachine):
    """The pool against a plain list of what was handed out."""

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(num_blocks=16, block_size=4)
        self.held: list[tuple[int, ...]] = []

    @rule(num_blocks=st.integers(0, 20))
    def take(self, num_blocks):
        free_before = self.pool.num_free
        taken = self.pool.take(num_blocks)
        assert (taken is None) == (num_blocks > free_before)
        if taken is not None:
            assert len(taken) == num_blocks
            self.held.append(taken)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data):
        index = data.draw(st.integers(0, len(self.held) - 1))
        self.pool.give_back(self.held.pop(index))

    @invariant()
    def a_block_has_at_most_one_holder(self):
        out = [block for taken in self.held for block in taken]
        assert len(out) == len(set(out))

    @invariant()
    def free_and_taken_are_all(self):
        out = sum(len(taken) for taken in self.held)
        assert self.pool.num_free + out == self.pool.num_blocks == 16


TestBlockPool = BlockPoolMachine.TestCase
