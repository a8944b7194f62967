import pytest

from lanehost.disk_cache.interface import DeleteFiles, FileReason
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
    rig.tier.flush("s")
    rig.settle()
    assert (lost in rig.disk.files, rig.disk.aside) == (True, [lost])
    rig.tier.flush(None)
    rig.settle()
    assert (rig.disk.files, rig.disk.aside) == ({}, [])


@pytest.mark.parametrize("kind", [EmptyAside, RemoveManifest])
def test_what_the_shelf_cannot_remove_is_counted(kind):
    rig = TierRig()
    rig.saved(range(8))
    rig.shelf.fault = lambda work: FileReason.DENIED if isinstance(work, kind) else None
    rig.tier.flush(None)
    rig.settle()
    assert rig.tier.counters.faults == {"denied": 1}


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
