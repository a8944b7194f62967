import pytest

from lanehost.disk_cache.interface import CheckFile, DeleteFiles, FileReason, SaveFile
from lanehost.disk_cache.shelf import EmptyAside, RemoveManifest
from tests.support.disk_entries import manifest_of
from tests.support.disk_tiers import TierRig


def works(rig, kind):
    return [work for work in rig.files.works if isinstance(work, kind)]


def test_the_manifest_goes_before_the_files():
    rig = TierRig()
    rig.saved(range(8))
    rig.tier.flush(None)
    assert isinstance(rig.shelf.waiting[0], RemoveManifest)
    assert works(rig, DeleteFiles) == []
    rig.settle()
    assert (rig.disk.manifests, rig.disk.files) == ({}, {})


def test_a_flush_of_all_leaves_nothing_that_is_of_no_entry():
    rig = TierRig()
    rig.saved(range(8))
    rig.saved(range(100, 108), scope="t")
    lost = manifest_of(range(200, 208)).header.name
    rig.disk.files[lost], rig.disk.aside = (None, ()), [lost]
    rig.index.note_aside(80)
    rig.tier.flush("s")
    rig.settle()
    assert (lost in rig.disk.files, rig.disk.aside) == (True, [lost])
    rig.tier.flush(None)
    rig.settle()
    assert (rig.disk.files, rig.disk.aside, rig.index.aside_bytes) == ({}, [], 0)


def test_what_is_moved_aside_takes_room_of_the_budget():
    rig = TierRig(budget=250)
    rig.saved(range(8))
    rig.files.fault = lambda work: FileReason.TORN if isinstance(work, CheckFile) else None
    assert rig.fetch(range(9))
    rig.settle()
    for first in (100, 200, 300):
        rig.saved(range(first, first + 8))
    assert (rig.index.aside_bytes, rig.index.num_bytes, len(rig.disk.aside)) == (80, 160, 1)


@pytest.mark.parametrize("kind", [EmptyAside, RemoveManifest])
def test_what_the_shelf_cannot_remove_is_counted(kind):
    rig = TierRig()
    rig.saved(range(8))
    rig.shelf.fault = lambda work: FileReason.DENIED if isinstance(work, kind) else None
    rig.tier.flush(None)
    rig.settle()
    assert rig.tier.counters.faults == {"denied": 1}


def test_files_stay_as_long_as_their_manifest_and_both_go_later():
    rig = TierRig()
    rig.saved(range(8))
    rig.shelf.fault = lambda work: FileReason.IO if isinstance(work, RemoveManifest) else None
    rig.tier.flush("s")
    rig.settle()
    assert (len(rig.disk.manifests), len(rig.disk.files)) == (1, 1)
    assert (rig.tier.counters.faults, rig.tier.is_quiet) == ({"io": 1}, True)
    rig.shelf.fault = lambda _: None
    rig.saved(range(100, 108))
    assert len(rig.disk.manifests) == 1
    rig.now_s += 11
    rig.saved(range(100, 108))
    assert list(rig.disk.files) == list(rig.disk.manifests)
    assert len(rig.disk.files) == 1
    rig.saved(range(8))
    assert rig.index.num_entries == 2


def test_files_of_many_entries_are_removed_by_one_work_at_a_time():
    rig = TierRig(budget=10_000)
    for first in range(0, 1000, 100):
        rig.saved(range(first, first + 8))
    rig.tier.flush("s")
    rig.shelf.let_all_back()
    assert [len(work.names) for work in works(rig, DeleteFiles)] == [1]
    rig.settle()
    assert [len(work.names) for work in works(rig, DeleteFiles)] == [1, 9]
    assert rig.disk.files == {}


def test_files_that_could_not_be_removed_go_later():
    rig = TierRig()
    rig.saved(range(8))
    rig.files.fault = lambda work: FileReason.BUSY if isinstance(work, DeleteFiles) else None
    rig.tier.flush("s")
    rig.settle()
    assert (len(rig.disk.files), rig.tier.counters.faults) == (1, {"busy": 1})
    rig.files.fault = lambda _: None
    rig.saved(range(100, 108))
    assert len(rig.disk.files) == 2
    rig.now_s += 11
    rig.saved(range(200, 208))
    assert len(rig.disk.files) == 2
    rig.saved(range(8))
    assert rig.index.num_entries == 3


def test_what_is_left_of_a_save_that_failed_does_not_take_a_later_one_with_it():
    rig = TierRig()
    rig.files.fault = lambda work: (
        FileReason.IO if isinstance(work, (SaveFile, DeleteFiles)) else None
    )
    rig.saved(range(8))
    rig.files.fault = lambda _: None
    rig.now_s += 11
    rig.saved(range(8))
    rig.now_s += 11
    rig.saved(range(100, 108))
    assert len(rig.disk.files) == rig.index.num_entries == 2


def test_who_does_not_own_the_folder_any_more_asks_for_nothing():
    rig = TierRig()
    rig.saved(range(8))
    rig.shelf.is_disowned = True
    rig.saved(range(100, 108))
    num_before = len(rig.files.works)
    rig.now_s += 11
    rig.saved(range(200, 208))
    assert not rig.fetch(range(9))
    rig.tier.flush(None)
    rig.settle()
    assert len(rig.files.works) == num_before
    assert len(rig.disk.files) == 2
    assert rig.tier.counters.dropped == {"no_ranks": 1}


def test_a_smaller_budget_than_before_makes_entries_go():
    rig = TierRig()
    rig.saved(range(8))
    rig.saved(range(100, 108))
    after = TierRig(rig.disk, budget=100)
    after.settle()
    assert (after.index.num_entries, len(rig.disk.files)) == (1, 1)


def test_a_loss_ends_saves_and_fetches_and_the_next_ranks_sweep():
    rig = TierRig()
    rig.saved(range(8))
    assert rig.fetch(range(9))
    rig.save(range(100, 108))
    rig.lose_ranks()
    assert (rig.fetched, len(rig.released)) == ([False], 2)
    rig.disk.files[manifest_of(range(200, 208)).header.name] = (None, ())
    rig.new_ranks()
    rig.settle()
    assert len(rig.disk.files) == 1
    assert rig.fetch(range(9))


def test_without_ranks_nothing_begins():
    rig = TierRig()
    rig.saved(range(8))
    rig.lose_ranks()
    rig.save(range(100, 108))
    assert rig.tier.counters.dropped == {"no_ranks": 1}
    assert not rig.fetch(range(9))


def test_removals_that_are_with_lost_ranks_end_with_them():
    rig = TierRig()
    rig.saved(range(8))
    rig.tier.flush(None)
    rig.shelf.let_all_back()
    rig.lose_ranks()
    rig.lose_ranks()
    rig.new_ranks()
    rig.settle()
    rig.saved(range(8))
    assert rig.index.num_entries == 1
