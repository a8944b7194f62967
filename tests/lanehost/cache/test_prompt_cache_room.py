"""The laws of lanehost.cache.prompt_cache: what stays, what goes first, and what is counted."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lanehost.cache.blocks import BlockPool
from lanehost.cache.prompt_cache import EntryKind, EntryState, PromptCache
from tests.support.prompt_caches import SIZE, begin, keep, make_cache, run, tokens

NUM_BLOCKS = 12
SYSTEM = tokens(8)


def tail(number, num_tokens=8):
    return tokens(num_tokens, first=1000 * number)


def is_visible(entry):
    return entry.state is EntryState.VISIBLE


def test_a_mark_survives_the_eviction_of_the_tails_that_grew_from_it():
    cache, blocks = make_cache(num_blocks=8)
    tails = [run(cache, blocks, (*SYSTEM, *tail(n)), marks=(8,)) for n in (1, 2, 3)]
    assert (blocks.num_free, cache.num_entries) == (0, 4)
    assert cache.make_room(6)
    assert not any(is_visible(entry) for entry in tails)
    assert cache.borrow("s", (*SYSTEM, *tail(4))).num_tokens == 8


def test_a_mark_never_keeps_a_job_out():
    cache, blocks = make_cache(num_blocks=8)
    run(cache, blocks, (*SYSTEM, *tail(1)), marks=(8,))
    run(cache, blocks, (*tokens(8, first=50), *tail(2)), marks=(8,))
    assert cache.make_room(8)
    assert (cache.num_entries, blocks.num_free) == (0, 8)


def test_of_marks_and_states_alike_the_least_recently_used_goes_first():
    cache, blocks = make_cache()
    mark = keep(cache, blocks, tokens(8, first=50), kind=EntryKind.MARK)
    state = keep(cache, blocks, tokens(8, first=70))
    assert cache.make_room(blocks.num_free + 1)
    assert (is_visible(mark), is_visible(state)) == (False, True)


def test_a_mark_that_others_go_on_from_stays_fresh_and_their_tails_age():
    cache, blocks = make_cache()
    run(cache, blocks, (*SYSTEM, *tail(1)), marks=(8,))
    alone = keep(cache, blocks, tokens(8, first=50))
    second = run(cache, blocks, (*SYSTEM, *tail(2)), marks=(8,))
    cache.make_room(16 - 4)
    assert [is_visible(entry) for entry in (alone, second)] == [False, True]
    cache.make_room(16 - 2)
    assert cache.borrow("s", (*SYSTEM, *tail(3))).entry.kind is EntryKind.MARK


def test_of_the_entries_that_cover_a_prefix_the_shortest_is_borrowed():
    cache, blocks = make_cache()
    run(cache, blocks, (*SYSTEM, *tail(1)), marks=(4, 8))
    borrow = cache.borrow("s", (*SYSTEM, *tail(2)))
    assert (borrow.num_tokens, borrow.entry.token_ids) == (8, SYSTEM)


def test_of_entries_as_short_the_one_used_last_is_borrowed():
    cache, blocks = make_cache()
    first = run(cache, blocks, (*SYSTEM, *tail(1)))
    run(cache, blocks, (*SYSTEM, *tail(2)))
    cache.report(cache.borrow("s", (*first.token_ids, 1)))
    assert cache.borrow("s", (*SYSTEM, *tail(3))).entry is first


def test_a_mark_is_kept_also_where_a_longer_entry_covers_it_and_holds_nothing_anew():
    cache, blocks = make_cache()
    long = keep(cache, blocks, (*SYSTEM, *tail(1)))
    free = blocks.num_free
    mark = keep(cache, blocks, SYSTEM, kind=EntryKind.MARK)
    assert (cache.num_entries, blocks.num_free) == (2, free)
    assert mark.block_ids == long.block_ids[:2]


def test_a_state_that_is_kept_again_as_a_mark_becomes_one_and_stays_one():
    cache, blocks = make_cache()
    entry = keep(cache, blocks, SYSTEM)
    for kind in (EntryKind.MARK, EntryKind.STATE):
        assert keep(cache, blocks, SYSTEM, kind=kind) is entry
        assert entry.kind is EntryKind.MARK
    assert (cache.counters.kept, cache.counters.refreshed) == (1, 2)
    keep(cache, blocks, (*SYSTEM, *tail(1)))
    assert not cache._is_superseded(entry)


def test_what_longer_entries_share_stays_until_they_have_gone():
    """A chat that grew gives up its last turn first, and the beginning last."""
    cache, blocks = make_cache()
    turns = [run(cache, blocks, tokens(8 * turn)) for turn in (1, 2, 3)]
    left = []
    for num_blocks in (1, 3, 5):
        assert cache.make_room(16 - 6 + num_blocks)
        left.append([is_visible(turn) for turn in turns])
    assert left == [[True, True, False], [True, False, False], [False, False, False]]
    assert cache.counters.evicted == 3


def test_superseded_entries_that_hold_blocks_of_their_own_go_first():
    """A growing chat whose turns shared nothing: each computed all of it anew."""
    cache, blocks = make_cache()
    old = keep(cache, blocks, tokens(8, first=50))
    lanes = [blocks.take(num_blocks) for num_blocks in (1, 2, 3)]
    turns = [cache.keep("s", tokens(len(lane) * SIZE), lane) for lane in lanes]
    for lane in lanes:
        blocks.give_back(lane)
    for num_tokens in (5, 9):
        cache.report(cache.borrow("s", tokens(num_tokens)))
    for num_gone in (1, 2):
        assert cache.make_room(blocks.num_free + 1)
        assert [is_visible(turn) for turn in turns] == [n >= num_gone for n in range(3)]
    assert is_visible(old)
    assert cache.make_room(blocks.num_free + 1)
    assert [is_visible(entry) for entry in (old, turns[2])] == [False, True]


def test_an_entry_is_superseded_only_while_a_longer_one_is_there():
    cache, blocks = make_cache()
    short, long = run(cache, blocks, tokens(4)), run(cache, blocks, tokens(12))
    assert (cache._is_superseded(short), cache._is_superseded(long)) == (True, False)
    cache.forget(long)
    assert not cache._is_superseded(short)


def test_an_entry_that_only_begins_alike_is_not_superseded():
    cache, blocks = make_cache()
    other = keep(cache, blocks, (*tokens(4), 90, 91, 92, 93))
    keep(cache, blocks, tokens(12))
    assert not cache._is_superseded(other)


def test_an_entry_of_another_scope_is_not_superseded():
    cache, blocks = make_cache()
    other = keep(cache, blocks, tokens(4), scope="t")
    keep(cache, blocks, tokens(8))
    assert not cache._is_superseded(other)


def test_kept_borrowed_and_dead_blocks_are_each_counted_once():
    cache, blocks = make_cache()
    run(cache, blocks, (*SYSTEM, *tail(1)), marks=(8,))
    keep(cache, blocks, tokens(4, first=50))
    borrow = cache.borrow("s", (*SYSTEM, *tail(2)))
    assert _counts(cache) == (5, 2, 0)
    cache.forget(borrow.entry)
    assert _counts(cache) == (5, 2, 2)
    cache.clear()
    assert _counts(cache) == (2, 2, 2)
    cache.report(borrow)
    assert _counts(cache) == (0, 0, 0)


def _counts(cache):
    return cache.num_kept_blocks, cache.num_borrowed_blocks, cache.num_dead_blocks


@pytest.mark.parametrize("num_tails", [1, 200])
def test_a_look_up_compares_one_entry_however_many_cover_the_prefix(num_tails):
    class ComparedTokens(tuple):
        __slots__ = ()
        num_compared = 0

        def __eq__(self, other):
            ComparedTokens.num_compared += 1
            return tuple.__eq__(self, other)

        __hash__ = tuple.__hash__

        def __getitem__(self, item):
            got = tuple(self)[item]
            return ComparedTokens(got) if isinstance(item, slice) else got

    cache, blocks = make_cache(num_blocks=1024)
    for number in range(num_tails):
        run(cache, blocks, (*SYSTEM, *tail(number + 1)))
    assert cache.borrow("s", ComparedTokens((*SYSTEM, 7))).num_tokens == 8
    assert ComparedTokens.num_compared == 1


class RoomMachine(RuleBasedStateMachine):
    """Lanes that share, keep at marks and end, against sums over all entries."""

    prompts = st.lists(st.integers(0, 1), min_size=1, max_size=20).map(tuple)
    marks = st.lists(st.integers(0, 20), max_size=2).map(sorted)

    def __init__(self):
        super().__init__()
        self.cache, self.blocks = make_cache(num_blocks=NUM_BLOCKS)
        self.lanes: list = []
        self.borrowed: list = []

    @property
    def visible(self):
        return list(self.cache._entries)

    def entries(self):
        return [*self.visible, *self.cache._dead]

    @rule(token_ids=prompts, marks=marks)
    def run_a_lane(self, token_ids, marks):
        block_ids = begin(self.cache, self.blocks, token_ids)
        if block_ids is None:
            return
        for mark in marks:
            self.cache.keep("s", token_ids[:mark], block_ids, kind=EntryKind.MARK)
        self.lanes.append((token_ids, block_ids))

    @precondition(lambda self: self.lanes)
    @rule(data=st.data(), kind=st.sampled_from(EntryKind))
    def end_a_lane(self, data, kind):
        number = data.draw(st.integers(0, len(self.lanes) - 1))
        token_ids, block_ids = self.lanes.pop(number)
        self.cache.keep("s", token_ids, block_ids, kind=kind)
        self.blocks.give_back(block_ids)

    @rule(token_ids=prompts)
    def borrow(self, token_ids):
        limit = (len(token_ids) - 1) // SIZE * SIZE
        matched = {id(e): _num_matching(e.token_ids, token_ids[:limit]) for e in self.visible}
        longest = max(matched.values(), default=0)
        covering = [entry for entry in self.visible if matched[id(entry)] == longest]
        best = min(covering, key=lambda e: (len(e.token_ids), -e.last_used), default=None)
        borrow = self.cache.borrow("s", token_ids)
        if longest == 0:
            assert borrow is None
            return
        assert (borrow.entry, borrow.num_tokens) == (best, longest)
        self.borrowed.append(borrow)

    @precondition(lambda self: self.borrowed)
    @rule(data=st.data())
    def report(self, data):
        self.cache.report(self.borrowed.pop(data.draw(st.integers(0, len(self.borrowed) - 1))))

    @precondition(lambda self: self.visible)
    @rule(data=st.data())
    def forget(self, data):
        self.cache.forget(data.draw(st.sampled_from(self.visible)))

    @rule(num_blocks=st.integers(0, NUM_BLOCKS))
    def make_room(self, num_blocks):
        before, num_free = list(self.visible), self.blocks.num_free
        lasting = _ids(block_ids for _, block_ids in self.lanes)
        lasting |= _ids(entry.block_ids for entry in self.entries() if entry.num_borrowers)
        has_room = self.cache.make_room(num_blocks)
        assert has_room == (NUM_BLOCKS - len(lasting) >= num_blocks)
        gone = [entry for entry in before if not is_visible(entry)]
        assert len(gone) <= self.blocks.num_free - num_free
        assert not any(entry.num_borrowers for entry in gone)
        assert has_room or not gone
        # Nobody who stays still holds what went: room is made from the ends.
        stays = _ids(entry.block_ids for entry in self.visible)
        assert not any(entry.block_ids[-1] in stays for entry in gone)

    @invariant()
    def blocks_are_counted_right(self):
        kept, lanes = _ids(e.block_ids for e in self.entries()), _ids(b for _, b in self.lanes)
        borrowed = _ids(e.block_ids for e in self.entries() if e.num_borrowers)
        dead = _ids(entry.block_ids for entry in self.cache._dead)
        assert _counts(self.cache) == (len(kept), len(borrowed), len(dead))
        assert dead <= borrowed <= kept
        assert self.blocks.num_free + len(kept | lanes) == NUM_BLOCKS

    @invariant()
    def who_holds_a_block_holds_those_before_it(self):
        for block_ids in [*(e.block_ids for e in self.entries()), *(b for _, b in self.lanes)]:
            holders = [self.blocks.num_holders(block_id) for block_id in block_ids]
            assert holders == sorted(holders, reverse=True)

    @invariant()
    def no_state_is_kept_twice(self):
        states = [entry.token_ids for entry in self.visible]
        assert len(set(states)) == len(states)

    @invariant()
    def no_mark_is_superseded_and_a_state_only_by_a_longer_one(self):
        for entry in self.visible:
            is_covered = any(
                len(other.token_ids) > len(entry.token_ids)
                and other.token_ids[: len(entry.token_ids)] == entry.token_ids
                for other in self.visible
            )
            is_state = entry.kind is EntryKind.STATE
            assert self.cache._is_superseded(entry) == (is_state and is_covered)


def _ids(tables):
    return {block_id for block_ids in tables for block_id in block_ids}


def _num_matching(ours, theirs):
    num = 0
    while num < min(len(ours), len(theirs)) and ours[num : num + SIZE] == theirs[num : num + SIZE]:
        num += SIZE
    return num


RoomMachine.TestCase.settings = settings(stateful_step_count=30, deadline=None)
TestRoom = RoomMachine.TestCase


def test_a_thousand_evictions_look_at_each_entry_once_and_not_at_all_for_each():
    """Looks are counted, not seconds: making room must not grow with its square."""
    looks = []

    class Counted(PromptCache):
        def _turn(self, entry):
            looks.append(entry)
            return super()._turn(entry)

    blocks = BlockPool(num_blocks=1000, block_size=4)
    cache = Counted(blocks)
    for number in range(1000):
        block_ids = blocks.take(1)
        cache.keep("", (number, 1, 2, 3), block_ids)
        blocks.give_back(block_ids)
    assert cache.make_room(1000)
    assert (cache.num_entries, blocks.num_free) == (0, 1000)
    assert len(looks) == 1000
