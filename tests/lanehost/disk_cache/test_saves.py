import pytest

from lanehost.disk_cache.interface import (
    DropFile,
    FileReason,
    SaveFile,
)
from lanehost.disk_cache.shelf import WriteManifest
from tests.support.disk_entries import manifest_of
from tests.support.disk_tiers import TierRig


def works(rig, kind):
    return [work for work in rig.files.works if isinstance(work, kind)]


def test_blocks_are_released_once_the_ranks_have_written_them():
    rig = TierRig()
    rig.save(range(8))
    assert rig.released == []
    rig.files.let_all_back()
    assert rig.released == [tuple(range(8))]


def test_one_save_is_with_the_ranks_at_a_time():
    rig = TierRig()
    rig.save(range(8))
    rig.save(range(100, 108))
    assert len(works(rig, SaveFile)) == 1
    rig.settle()
    assert len(works(rig, SaveFile)) == 2


def test_room_is_made_within_the_budget():
    rig = TierRig(budget=170)
    rig.saved(range(8))
    rig.saved(range(100, 108))
    rig.saved(range(200, 208))
    assert rig.index.num_bytes == 160
    assert rig.tier.counters.evicted == 1
    assert rig.tier.find("s", tuple(range(9))) is None


def test_what_can_never_fit_is_dropped_and_counted():
    rig = TierRig(budget=70)
    rig.saved(range(8))
    assert rig.tier.counters.dropped == {"budget": 1}
    assert rig.released == [tuple(range(8))]


def test_what_is_there_already_is_not_written_again():
    rig = TierRig()
    rig.saved(range(8))
    rig.saved(range(8))
    assert len(works(rig, SaveFile)) == 1
    assert len(rig.released) == 2


def test_a_full_queue_drops_and_counts():
    rig = TierRig(budget=10_000)
    for first in range(0, 1800, 100):
        rig.save(range(first, first + 8))
    assert rig.tier.counters.dropped == {"queue_full": 1}
    rig.settle()
    assert rig.tier.counters.saved == 17


@pytest.mark.parametrize(
    "reason", [FileReason.NO_SPACE, FileReason.DENIED, FileReason.IO, FileReason.GONE]
)
def test_a_disk_that_fails_is_left_alone_for_a_while(reason):
    rig = TierRig()
    rig.files.fault = lambda work: reason if isinstance(work, SaveFile) else None
    rig.saved(range(8))
    rig.saved(range(8))
    assert rig.tier.counters.faults == {reason.value: 1}
    assert rig.tier.counters.dropped == {"paused": 1}
    rig.files.fault = lambda _: None
    rig.now_s += 11
    rig.saved(range(8))
    assert rig.tier.counters.saved == 1


def test_a_manifest_that_cannot_be_written_leaves_no_files():
    rig = TierRig()
    rig.shelf.fault = lambda work: FileReason.IO if isinstance(work, WriteManifest) else None
    rig.saved(range(8))
    assert (rig.disk.files, rig.index.num_entries) == ({}, 0)
    assert rig.tier.is_quiet


def test_recalled_saves_give_their_blocks_back_and_nothing_comes_of_them():
    rig = TierRig()
    rig.save(range(8))
    rig.save(range(100, 108))
    assert rig.tier.recall_saves()
    assert len(rig.released) == 2
    assert not rig.tier.recall_saves()
    rig.settle()
    assert (rig.index.num_entries, rig.disk.files, len(rig.released)) == (0, {}, 2)
    assert rig.tier.counters.dropped == {"recalled": 2}
    rig.saved(range(8))
    assert rig.index.num_entries == 1


def test_ranks_are_told_at_once_that_a_save_is_recalled_and_no_disk_is_blamed():
    rig = TierRig()
    rig.save(range(8))
    rig.tier.recall_saves()
    rig.tier.recall_saves()
    assert [work.name for work in works(rig, DropFile)] == [manifest_of(range(8)).header.name]
    rig.settle()
    assert rig.tier.counters.faults == {}
    rig.saved(range(8))
    assert rig.index.num_entries == 1


def test_a_disk_that_fails_a_recalled_save_is_blamed():
    rig = TierRig()
    rig.files.fault = lambda work: FileReason.IO if isinstance(work, SaveFile) else None
    rig.save(range(8))
    rig.tier.recall_saves()
    rig.settle()
    assert rig.tier.counters.faults == {"io": 1}


def test_a_recalled_save_is_not_released_again_by_a_loss():
    rig = TierRig()
    rig.save(range(8))
    rig.tier.recall_saves()
    rig.lose_ranks()
    assert len(rig.released) == 1
