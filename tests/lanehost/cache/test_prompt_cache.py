import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lanehost.cache.blocks import BlockPool
from lanehost.cache.prompt_cache import EntryState, PromptCache, chain_keys
from tests.support.prompt_caches import SIZE, keep, make_cache, tokens


def test_the_longest_prefix_is_found_in_whole_blocks():
    cache, blocks = make_cache()
    entry = keep(cache, blocks, tokens(14))
    borrow = cache.borrow("s", (*tokens(10), 99, 98))
    assert borrow.num_tokens == 8
    assert borrow.block_ids == entry.block_ids[:2]


@pytest.mark.parametrize(("num_prompt", "num_found"), [(8, 4), (9, 8), (12, 8), (13, 12)])
def test_a_match_leaves_at_least_one_token_to_run(num_prompt, num_found):
    cache, blocks = make_cache()
    keep(cache, blocks, tokens(16))
    assert cache.borrow("s", tokens(num_prompt)).num_tokens == num_found


def test_a_prefix_shorter_than_a_block_is_not_kept_and_not_found():
    cache, blocks = make_cache()
    assert keep(cache, blocks, tokens(3)) is None
    assert cache.borrow("s", tokens(3)) is None
    assert blocks.num_free == 16


def test_another_scope_misses():
    cache, blocks = make_cache()
    keep(cache, blocks, tokens(8))
    assert cache.borrow("t", tokens(9)) is None


def test_a_cache_that_is_off_keeps_nothing():
    blocks = BlockPool(num_blocks=4, block_size=SIZE)
    cache = PromptCache(blocks, is_on=False)
    assert keep(cache, blocks, tokens(8)) is None
    assert (cache.is_on, blocks.num_free) == (False, 4)


def test_tokens_are_compared_and_not_trusted_to_a_hash():
    """Plant an entry under the keys of other tokens, as a collision would."""
    cache, blocks = make_cache()
    entry = keep(cache, blocks, tokens(8))
    for key in chain_keys("s", tokens(8, first=50), SIZE):
        cache._index.by_key[key] = {id(entry): entry}
    assert cache.borrow("s", tokens(9, first=50)) is None


@given(
    st.tuples(st.text(), st.lists(st.integers(0, 9), min_size=8, max_size=8)),
    st.tuples(st.text(), st.lists(st.integers(0, 9), min_size=8, max_size=8)),
)
def test_keys_agree_exactly_as_far_as_scope_and_tokens_do(one, other):
    ours, theirs = (chain_keys(scope, tuple(ids), SIZE) for scope, ids in (one, other))
    for num_blocks in (1, 2):
        end = num_blocks * SIZE
        is_same = one[0] == other[0] and one[1][:end] == other[1][:end]
        assert (ours[num_blocks - 1] == theirs[num_blocks - 1]) is is_same


def test_the_same_state_again_is_a_refresh_and_holds_nothing_anew():
    cache, blocks = make_cache()
    first = keep(cache, blocks, tokens(8))
    free = blocks.num_free
    assert keep(cache, blocks, tokens(8)) is first
    assert (cache.num_entries, blocks.num_free) == (1, free)
    assert (cache.counters.kept, cache.counters.refreshed) == (1, 1)


def test_a_borrowed_entry_is_never_a_victim():
    cache, blocks = make_cache(num_blocks=4)
    keep(cache, blocks, tokens(8))
    borrow = cache.borrow("s", tokens(9))
    keep(cache, blocks, tokens(8, first=50))
    assert cache.make_room(2)
    assert borrow.entry.state is EntryState.VISIBLE
    assert not cache.make_room(3)
    cache.report(borrow)
    assert cache.make_room(4)


def test_when_even_all_victims_would_not_do_nothing_is_evicted():
    cache, blocks = make_cache(num_blocks=4)
    blocks.take(1)
    keep(cache, blocks, tokens(8))
    assert not cache.make_room(4)
    assert (cache.num_entries, cache.counters.evicted) == (1, 0)


def test_blocks_that_a_lane_holds_too_are_not_counted_as_room():
    cache, blocks = make_cache(num_blocks=4)
    lane = blocks.take(2)
    cache.keep("s", tokens(8), lane)
    assert not cache.make_room(3)
    assert cache.make_room(2)
    assert cache.num_entries == 1


def test_two_borrowers_the_first_finds_it_unusable_the_second_frees_it():
    cache, blocks = make_cache()
    keep(cache, blocks, tokens(8))
    first, second = cache.borrow("s", tokens(9)), cache.borrow("s", tokens(9))
    cache.forget(first.entry)
    cache.report(first)
    assert cache.borrow("s", tokens(9)) is None
    assert (cache.num_dead, cache.num_kept_blocks, first.entry.num_borrowers) == (1, 2, 1)
    cache.report(second)
    assert (cache.num_dead, cache.num_kept_blocks, blocks.num_free) == (0, 0, 16)


def test_a_borrow_reported_twice_is_a_fault():
    cache, blocks = make_cache()
    keep(cache, blocks, tokens(8))
    borrow = cache.borrow("s", tokens(9))
    cache.report(borrow)
    with pytest.raises(AssertionError, match="no borrower"):
        cache.report(borrow)


def test_forgetting_a_dead_entry_again_changes_nothing():
    cache, blocks = make_cache()
    entry = keep(cache, blocks, tokens(8))
    for _ in range(2):
        cache.forget(entry)
    assert blocks.num_free == 16
    assert "DEAD STATE 8 tokens" in repr(entry)
    assert repr(cache) == "<PromptCache 0 entries, 0 blocks>"


class CountedTokens(tuple):
    """Token ids that count how often they are cut."""

    __slots__ = ()
    cuts = 0

    def __getitem__(self, item):
        CountedTokens.cuts += 1
        return super().__getitem__(item)


def test_keeping_compares_tokens_only_with_entries_that_end_where_the_new_one_passes():
    """Many prompts that share a long beginning: each keep must not compare them all."""
    cache, blocks = make_cache(num_blocks=1024)
    shared = tokens(160)
    for number in range(20):
        keep(cache, blocks, (*shared, *tokens(4, first=1000 + 4 * number)))
    CountedTokens.cuts = 0
    own = CountedTokens((*shared, *tokens(4, first=5000)))
    keep(cache, blocks, own)
    assert CountedTokens.cuts < 60


def test_room_that_is_free_is_not_looked_for():
    cache, blocks = make_cache()
    keep(cache, blocks, tokens(8))
    cache._could_free = None
    assert cache.make_room(blocks.num_free)


class PromptCacheMachine(RuleBasedStateMachine):
    """Random keeps, borrows, evictions against plain lists."""

    prompts = st.lists(st.integers(0, 1), min_size=1, max_size=20).map(tuple)
    scopes = st.sampled_from(["s", "t"])

    def __init__(self):
        super().__init__()
        self.cache, self.blocks = make_cache(num_blocks=12)
        self.borrowed: list = []
        # What block holds which tokens, as the ranks would have it.
        self.content: dict[int, tuple[str, tuple[int, ...]]] = {}

    @rule(scope=scopes, token_ids=prompts)
    def compute_and_keep(self, scope, token_ids):
        if not self.cache.make_room(self.blocks.blocks_for(len(token_ids))):
            return
        lane = self.blocks.take(self.blocks.blocks_for(len(token_ids)))
        for number, block in enumerate(lane):
            self.content[block] = (scope, token_ids[: (number + 1) * SIZE])
        self.cache.keep(scope, token_ids, lane)
        self.blocks.give_back(lane)

    @rule(scope=scopes, token_ids=prompts)
    def borrow(self, scope, token_ids):
        borrow = self.cache.borrow(scope, token_ids)
        if borrow is None:
            return
        assert borrow.num_tokens < len(token_ids)
        for number, block in enumerate(borrow.block_ids):
            assert self.content[block] == (scope, token_ids[: (number + 1) * SIZE])
        self.borrowed.append(borrow)

    @precondition(lambda self: self.borrowed)
    @rule(data=st.data())
    def report(self, data):
        self.cache.report(self.borrowed.pop(data.draw(st.integers(0, len(self.borrowed) - 1))))

    @precondition(lambda self: self.borrowed)
    @rule(data=st.data())
    def find_unusable(self, data):
        self.cache.forget(data.draw(st.sampled_from(self.borrowed)).entry)

    @rule(num_blocks=st.integers(0, 14))
    def make_room(self, num_blocks):
        entries = self.cache.num_entries
        if self.cache.make_room(num_blocks):
            assert self.blocks.num_free >= num_blocks
        else:
            assert self.cache.num_entries == entries

    @rule()
    def clear(self):
        self.cache.clear()
        assert self.cache.num_entries == 0

    @invariant()
    def what_is_borrowed_stays_as_it_was(self):
        for borrow in self.borrowed:
            assert all(self.blocks.num_holders(block) for block in borrow.block_ids)

    @invariant()
    def free_and_kept_are_all(self):
        assert self.blocks.num_free + self.cache.num_kept_blocks == 12

    @invariant()
    def only_borrowed_entries_are_dead_and_still_charged(self):
        dead = {id(b.entry) for b in self.borrowed if b.entry.state is EntryState.DEAD}
        assert self.cache.num_dead == len(dead)


TestPromptCache = PromptCacheMachine.TestCase
