import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lanehost.disk_cache.identity import scope_digest
from lanehost.disk_cache.interface import (
    AdoptFile,
    CheckFile,
    FileReason,
    SaveFile,
)
from lanehost.disk_cache.shelf import RemoveManifest
from tests.support.disk_entries import SIZE, manifest_of
from tests.support.disk_tiers import TierRig
from tests.support.fake_files import FakeDisk


def works(rig, kind):
    return [work for work in rig.files.works if isinstance(work, kind)]


def test_what_was_saved_comes_back_into_other_blocks():
    rig = TierRig()
    rig.saved(range(8))
    assert rig.fetch(range(9))
    rig.settle()
    assert rig.fetched == [True]
    assert (rig.rows[50], rig.rows[51]) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert (rig.tier.counters.saved, rig.tier.counters.hits) == (1, 1)


def test_an_entry_is_found_only_once_its_manifest_is_written():
    rig = TierRig()
    rig.save(range(8))
    rig.files.let_all_back()
    assert rig.tier.find("s", tuple(range(9))) is None
    rig.shelf.let_all_back()
    assert rig.tier.find("s", tuple(range(9))) is not None


def test_it_survives_a_restart_of_the_master():
    rig = TierRig()
    rig.saved(range(8))
    after = TierRig(rig.disk)
    assert after.fetch(range(9))
    after.settle()
    assert after.fetched == [True]


def test_it_survives_the_loss_of_the_ranks():
    rig = TierRig()
    rig.saved(range(8))
    rig.lose_ranks()
    rig.new_ranks()
    rig.settle()
    assert rig.fetch(range(9))


def test_no_save_begins_while_a_fetch_is_open():
    rig = TierRig()
    rig.saved(range(8))
    assert rig.fetch(range(9))
    rig.save(range(100, 108))
    assert len(works(rig, SaveFile)) == 1
    rig.settle()
    assert len(works(rig, SaveFile)) == 2


def test_uses_are_written_and_live_through_a_restart():
    rig = TierRig()
    rig.saved(range(8))
    rig.tier.note_use(rig.tier.find("s", tuple(range(9))))
    rig.tier.write_uses()
    rig.settle()
    entry = TierRig(rig.disk).tier.find("s", tuple(range(9)))
    assert entry.manifest.hits == 1


def test_uses_that_could_not_be_written_are_written_the_next_time():
    rig = TierRig()
    rig.saved(range(8))
    rig.tier.note_use(rig.tier.find("s", tuple(range(9))))
    rig.shelf.fault = lambda _: FileReason.NO_SPACE
    rig.tier.write_uses()
    rig.settle()
    assert rig.tier.counters.faults == {"no_space": 1}
    rig.shelf.fault = lambda _: None
    rig.tier.write_uses()
    rig.settle()
    assert next(iter(rig.disk.manifests.values())).hits == 1


def test_after_some_uses_they_are_written_by_themselves():
    rig = TierRig()
    rig.saved(range(8))
    entry = rig.tier.find("s", tuple(range(9)))
    for _ in range(32):
        rig.tier.note_use(entry)
    rig.settle()
    assert next(iter(rig.disk.manifests.values())).hits == 32


def test_one_that_is_distrusted_is_moved_aside():
    rig = TierRig()
    rig.saved(range(8))
    rig.saved(range(8), scope="t")
    rig.saved(range(4))
    rig.saved(range(100, 108))
    rig.tier.distrust("s", tuple(range(9)))
    rig.settle()
    assert (len(rig.disk.aside), rig.index.num_entries) == (2, 2)


@pytest.mark.parametrize("is_written", [False, True])
def test_one_that_is_distrusted_on_its_way_is_never_found(is_written):
    rig = TierRig()
    rig.save(range(8))
    if is_written:
        rig.files.let_all_back()
    rig.save(range(4))
    rig.tier.distrust("s", tuple(range(9)))
    rig.settle()
    assert (rig.index.num_entries, rig.disk.files, rig.disk.manifests) == (0, {}, {})


@pytest.mark.parametrize("phase", [CheckFile, AdoptFile])
def test_one_that_is_distrusted_while_it_is_fetched_comes_to_nothing(phase):
    rig = TierRig()
    rig.saved(range(8))
    assert rig.fetch(range(9))
    while not isinstance(rig.files.waiting[0], phase):
        rig.files.let_one_back()
    rig.tier.distrust("s", tuple(range(9)))
    rig.settle()
    assert (rig.fetched, len(rig.disk.aside)) == ([False], 1)


def test_a_flush_of_a_scope_leaves_others():
    rig = TierRig()
    rig.saved(range(8))
    rig.saved(range(8), scope="t")
    rig.saved(range(100, 108))
    assert rig.fetch(range(9))
    assert rig.tier.flush("s") == (1, 1)
    rig.settle()
    assert rig.index.num_entries == 1
    assert rig.tier.flush(None) == (1, 0)


def test_a_prune_removes_files_until_they_fit_and_leaves_what_is_in_use():
    rig = TierRig()
    for first in (0, 100, 200):
        rig.saved(range(first, first + 8))
    assert rig.fetch(range(9))
    each = rig.index.num_bytes // 3
    assert rig.tier.prune(3 * each) == (0, 0)
    assert rig.tier.prune(2 * each) == (1, each)
    assert rig.tier.prune(0) == (1, each)
    rig.settle()
    assert rig.fetched == [True]
    assert [entry.manifest.token_ids[0] for entry in rig.index] == [0]
    assert len(rig.disk.manifests) == 1


def test_nothing_comes_of_saves_that_are_flushed():
    rig = TierRig()
    rig.save(range(8))
    rig.files.let_all_back()
    rig.save(range(100, 108))
    rig.save(range(200, 208))
    assert rig.tier.flush(None) == (0, 1)
    rig.settle()
    assert (rig.index.num_entries, rig.disk.files, rig.disk.manifests) == (0, {}, {})
    rig.saved(range(8))
    assert rig.index.num_entries == 1


def test_a_flush_of_a_scope_leaves_what_is_listed_of_others():
    rig = TierRig()
    rig.save(range(8), scope="t")
    rig.files.let_all_back()
    assert rig.tier.flush("s") == (0, 0)
    rig.settle()
    assert rig.index.num_entries == 1


@pytest.mark.parametrize("reason", [None, FileReason.BUSY, FileReason.CHECKSUM])
@pytest.mark.parametrize("phase", [CheckFile, AdoptFile])
def test_a_fetch_of_what_is_flushed_meanwhile_comes_to_nothing(phase, reason):
    rig = TierRig()
    rig.saved(range(8))
    assert rig.fetch(range(9))
    while not isinstance(rig.files.waiting[0], phase):
        rig.files.let_one_back()
    assert rig.tier.flush("s") == (0, 1)
    assert rig.tier.find("s", tuple(range(9))) is None
    rig.files.fault = lambda work: reason if isinstance(work, phase) else None
    rig.settle()
    assert rig.fetched == [False]
    assert (rig.disk.files, rig.disk.manifests, rig.disk.aside) == ({}, {}, [])
    assert rig.tier.counters.hits == 0


def test_what_is_flushed_while_it_is_fetched_goes_with_the_ranks_too():
    rig = TierRig()
    rig.saved(range(8))
    assert rig.fetch(range(9))
    rig.tier.flush(None)
    rig.lose_ranks()
    rig.new_ranks()
    rig.settle()
    assert rig.fetched == [False]
    assert (rig.disk.files, rig.disk.manifests) == ({}, {})


class TierMachine(RuleBasedStateMachine):
    """Any order of saves, fetches, faults, losses and restarts, over one disk."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = TierRig(FakeDisk(), budget=400)
        self.num_saves = self.num_fetches = 0
        self.stuck = set()
        self.flushed = set()

    prompts = st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.integers(0, 2))

    def ids(self, prompt):
        _, num_blocks, kind = prompt
        return tuple(range(kind * 2, kind * 2 + num_blocks * SIZE))

    @rule(prompt=prompts)
    def save(self, prompt):
        self.flushed.discard((scope_digest(prompt[0]), self.ids(prompt)))
        self.rig.save(self.ids(prompt), scope=prompt[0])
        self.num_saves += 1

    @rule(prompt=prompts, blocks=st.sampled_from([(50, 51, 52), None]))
    def fetch(self, prompt, blocks):
        self.num_fetches += self.rig.fetch((*self.ids(prompt), 9), scope=prompt[0], blocks=blocks)

    @precondition(lambda self: self.rig.files.waiting)
    @rule(reason=st.sampled_from([*[None] * 60, *FileReason]))
    def ranks_answer(self, reason):
        self.rig.files.fault = lambda _: reason
        work = self.rig.files.let_one_back()
        if isinstance(work, AdoptFile) and reason is None:
            rows = [row for block in work.block_ids for row in self.rig.rows[block]]
            owners = [manifest_of(rows, scope=scope).header for scope in "ab"]
            assert work.header in owners, "the blocks hold something else than was asked for"

    @precondition(lambda self: self.rig.shelf.waiting)
    @rule(reason=st.sampled_from([*[None] * 5, FileReason.NO_SPACE]))
    def shelf_answers(self, reason):
        self.rig.shelf.fault = lambda _: reason
        work = self.rig.shelf.let_one_back()
        if isinstance(work, RemoveManifest) and reason is not None:
            self.stuck.add(work.name)

    @rule()
    def all_goes_well_for_a_while(self):
        self.rig.files.fault = self.rig.shelf.fault = lambda _: None
        self.rig.now_s += 11
        self.rig.settle()

    @rule()
    def ranks_are_lost(self):
        self.rig.lose_ranks()
        assert len(self.rig.released) == self.num_saves
        assert len(self.rig.fetched) == self.num_fetches
        self.rig.new_ranks()

    @rule()
    def the_master_is_killed_and_comes_back(self):
        self.rig = TierRig(self.rig.disk, budget=400)
        self.num_saves = self.num_fetches = 0
        # It may have been killed before a manifest went.
        self.flushed.clear()

    @rule(scope=st.sampled_from(["a", "b", None]))
    def flush(self, scope):
        self.rig.tier.flush(scope)
        self.flushed |= {
            (scope_digest(one), self.ids((one, num_blocks, kind)))
            for one in "ab"
            for num_blocks in range(1, 4)
            for kind in range(3)
            if scope in (None, one)
        }

    @rule()
    def recall(self):
        self.rig.tier.recall_saves()
        for block in self.rig.rows:
            self.rig.rows[block] = (99,) * SIZE

    @rule()
    def write_uses(self):
        self.rig.tier.write_uses()

    @invariant()
    def what_is_found_is_there(self):
        # But where a manifest could not be removed: that will be a miss.
        for entry in (one for one in self.rig.index if one.name not in self.stuck):
            header, rows = self.rig.disk.files[entry.name]
            assert header == entry.manifest.header
            assert rows == entry.manifest.token_ids

    @invariant()
    def what_was_flushed_is_not_found(self):
        found = {(one.manifest.owner, one.manifest.token_ids) for one in self.rig.index}
        assert not found & self.flushed

    @invariant()
    def the_budget_is_kept(self):
        assert self.rig.index.num_bytes <= 400

    @invariant()
    def nothing_ends_twice(self):
        assert len(self.rig.released) <= self.num_saves
        assert len(self.rig.fetched) <= self.num_fetches

    def teardown(self):
        rig = self.rig
        rig.files.fault = rig.shelf.fault = lambda _: None
        rig.settle()
        assert rig.tier.is_quiet
        found = {(one.manifest.owner, one.manifest.token_ids) for one in rig.index}
        assert not found & self.flushed
        assert len(rig.released) == self.num_saves
        assert len(rig.fetched) == self.num_fetches
        assert all(entry.num_users == 0 for entry in rig.index)
        assert not rig.files.checked


TestTierMachine = TierMachine.TestCase
TestTierMachine.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
