from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lanehost.disk_cache.index import MAX_ASIDE, DiskIndex
from ranks.disk import folder
from tests.support.disk_entries import MODEL, SIZE, manifest_of

OTHER_MODEL = replace(MODEL, weights_digest="other")


def index_of(*manifests, budget=1000) -> DiskIndex:
    index = DiskIndex(MODEL.layout, block_size=SIZE, budget_bytes=budget)
    for manifest in manifests:
        index.add(manifest)
    return index


def test_the_longest_entry_that_the_prompt_covers_whole_is_found():
    index = index_of(manifest_of(range(4)), manifest_of(range(8)), manifest_of(range(12)))
    assert index.find("s", tuple(range(11))).num_tokens == 8


def test_one_that_is_shared_in_its_first_half_misses():
    index = index_of(manifest_of(range(8)))
    assert index.find("s", (*range(4), 9, 9, 9, 9, 9)) is None


def test_a_match_leaves_a_token_to_run():
    index = index_of(manifest_of(range(8)))
    assert index.find("s", tuple(range(8))) is None
    assert index.find("s", tuple(range(9))) is not None


@given(st.lists(st.floats(0, 2.0**40, exclude_max=True), min_size=4, max_size=4), st.data())
def test_a_clock_that_jumps_makes_nothing_old_and_hides_nothing(times, data):
    """As if a server had written each entry at another time of the world, in any order."""
    hits = data.draw(st.lists(st.integers(0, 9), min_size=4, max_size=4))
    entries = [
        manifest_of([at] * 8, hits=num, used=at) for at, num in zip(range(4), hits, strict=True)
    ]
    jumped = [replace(one, created_s=at) for one, at in zip(entries, times, strict=True)]
    still, index = index_of(*entries, budget=400), index_of(*jumped, budget=400)
    for at in data.draw(st.lists(st.integers(0, 3), max_size=6)):
        for one in (still, index):
            one.note_hit(one.find("s", (*[at] * 8, 9)))
    for num_bytes in (1, 101, 201, 301, 401):
        expected = [entry.manifest.token_ids for entry in still.victims(num_bytes) or ()]
        assert [entry.manifest.token_ids for entry in index.victims(num_bytes) or ()] == expected


def test_another_scope_misses():
    assert index_of(manifest_of(range(8))).find("t", tuple(range(9))) is None


def test_another_layout_misses_and_takes_room():
    index = index_of(manifest_of(range(8), model=OTHER_MODEL))
    assert index.find("s", tuple(range(9))) is None
    assert (index.num_entries, index.num_bytes) == (1, 100)


def test_tokens_and_owner_are_compared_and_not_trusted_to_a_hash():
    right = manifest_of(range(8))
    for wrong in (
        replace(right, token_ids=tuple(range(1, 9))),
        replace(right, owner="0" * 64),
    ):
        assert index_of(wrong).find("s", tuple(range(9))) is None


def test_hits_and_uses_go_on_where_they_were():
    index = index_of(manifest_of(range(8), hits=4, used=9))
    entry = index.find("s", tuple(range(9)))
    index.note_hit(entry)
    assert (entry.manifest.hits, entry.manifest.used, index.uses) == (5, 10, 10)
    assert entry.is_dirty


def test_least_worth_goes_first():
    index = index_of(
        manifest_of(range(8), hits=3, used=1),
        manifest_of(range(100, 108), hits=1, used=2),
        manifest_of(range(200, 208), hits=1, used=3),
        budget=300,
    )
    assert [entry.manifest.token_ids[0] for entry in index.victims(150)] == [100, 200]


def test_what_is_small_for_its_tokens_is_worth_more():
    index = index_of(
        manifest_of(range(8), hits=1, num_bytes=100),
        manifest_of(range(100, 108), hits=1, num_bytes=200),
        budget=300,
    )
    assert [entry.manifest.token_ids[0] for entry in index.victims(50)] == [100]


def test_an_entry_that_nobody_uses_any_more_loses_its_worth():
    old = manifest_of(range(8), hits=10, used=0)
    index = index_of(old, manifest_of(range(100, 108), hits=1, used=4000), budget=200)
    assert [entry.manifest.token_ids[0] for entry in index.victims(100)] == [0]


def test_beyond_fewer_bytes_are_the_least_worth_and_never_one_in_use():
    index = index_of(
        manifest_of(range(8), hits=3, used=1),
        manifest_of(range(100, 108), hits=1, used=2),
        manifest_of(range(200, 208), hits=2, used=3),
        budget=1000,
    )
    assert index.beyond(300) == ()
    assert [entry.manifest.token_ids[0] for entry in index.beyond(150)] == [100, 200]
    index.note_aside(10)
    assert [entry.manifest.token_ids[0] for entry in index.beyond(300)] == [100]
    index.find("s", tuple(range(100, 109))).num_users = 1
    assert [entry.manifest.token_ids[0] for entry in index.beyond(0)] == [200, 0]


def test_an_entry_in_use_is_never_a_victim():
    index = index_of(manifest_of(range(8)), budget=100)
    entry = index.find("s", tuple(range(9)))
    entry.num_users = 1
    assert index.victims(50) is None
    entry.num_users = 0
    assert index.victims(50) == (entry,)


def test_what_can_never_fit_has_no_victims():
    assert index_of(manifest_of(range(8)), budget=100).victims(101) is None


def test_what_was_moved_aside_takes_room_until_it_is_gone():
    index = index_of(manifest_of(range(8)), budget=250)
    index.note_aside(70)
    index.note_aside(40)
    assert (index.aside_bytes, index.victims(40), len(index.victims(41))) == (110, (), 1)
    assert index.victims(141) is None
    index.note_aside(10)
    assert index.aside_bytes == 50
    index.forget_aside()
    assert index.victims(150) == ()


def test_as_many_are_counted_as_ranks_keep():
    assert MAX_ASIDE == folder.MAX_ASIDE


def test_entries_of_a_scope():
    index = index_of(manifest_of(range(8)), manifest_of(range(8), scope="t"))
    assert [e.manifest.owner for e in index.of_scope("t")] == [
        manifest_of(range(8), scope="t").owner
    ]


class IndexMachine(RuleBasedStateMachine):
    """The index beside a plain dict from (scope, tokens) to (hits, bytes)."""

    def __init__(self) -> None:
        super().__init__()
        self.index = index_of(budget=500)
        self.model: dict[tuple[str, tuple[int, ...]], list[int]] = {}
        self.used: set[tuple[str, tuple[int, ...]]] = set()

    def entry(self, key):
        return next(e for e in self.index.of_scope(key[0]) if e.manifest.token_ids == key[1])

    @rule(
        scope=st.sampled_from("ab"),
        ids=st.lists(st.integers(0, 1), min_size=SIZE, max_size=3 * SIZE),
        num_bytes=st.integers(1, 200),
    )
    def add(self, scope, ids, num_bytes):
        ids = tuple(ids[: len(ids) // SIZE * SIZE])
        if (scope, ids) in self.used:
            return
        victims = self.index.victims(num_bytes)
        if victims is None:
            return
        for victim in victims:
            assert victim.num_users == 0
            owner = next(s for s in "ab" if victim in self.index.of_scope(s))
            del self.model[owner, victim.manifest.token_ids]
            self.index.remove(victim)
        self.index.add(manifest_of(ids, scope=scope, num_bytes=num_bytes))
        self.model[scope, ids] = [0, num_bytes]

    @rule(scope=st.sampled_from("ab"), ids=st.lists(st.integers(0, 1), max_size=4 * SIZE))
    def find(self, scope, ids):
        prompt = tuple(ids)
        covered = [
            tokens
            for owner, tokens in self.model
            if owner == scope and len(tokens) < len(prompt) and prompt[: len(tokens)] == tokens
        ]
        entry = self.index.find(scope, prompt)
        assert (entry and entry.manifest.token_ids) == max(covered, key=len, default=None)
        if entry is not None:
            self.index.note_hit(entry)
            self.model[scope, entry.manifest.token_ids][0] += 1

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def use_or_let_go(self, data):
        key = data.draw(st.sampled_from(sorted(self.model)))
        self.used ^= {key}
        self.entry(key).num_users = int(key in self.used)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data):
        key = data.draw(st.sampled_from(sorted(self.model)))
        self.index.remove(self.entry(key))
        del self.model[key]
        self.used.discard(key)

    @invariant()
    def the_budget_is_kept_and_counted(self):
        assert self.index.num_bytes == sum(size for _, size in self.model.values())
        assert self.index.num_bytes <= self.index.budget_bytes
        assert self.index.num_entries == len(self.model)

    @invariant()
    def hits_are_counted(self):
        for key, (hits, _) in self.model.items():
            assert self.entry(key).manifest.hits == hits


TestIndexMachine = IndexMachine.TestCase
