import pytest

from lanehost.disk_cache.fetches import Fetch
from lanehost.disk_cache.interface import (
    AdoptFile,
    CheckFile,
    FileReason,
    SaveFile,
)
from tests.support.disk_tiers import TierRig


def works(rig, kind):
    return [work for work in rig.files.works if isinstance(work, kind)]


def test_no_block_is_taken_before_all_ranks_have_verified():
    rig = TierRig()
    rig.saved(range(8))
    rig.files.fault = lambda work: FileReason.CHECKSUM if isinstance(work, CheckFile) else None
    assert rig.fetch(range(9))
    rig.settle()
    assert (rig.fetched, works(rig, AdoptFile)) == ([False], [])


@pytest.mark.parametrize("reason", [reason for reason in FileReason if reason.is_of_the_file])
@pytest.mark.parametrize("phase", [CheckFile, AdoptFile])
def test_a_file_that_is_not_what_it_should_be_is_a_miss_and_moved_aside(reason, phase):
    rig = TierRig()
    rig.saved(range(8))
    rig.files.fault = lambda work: reason if isinstance(work, phase) else None
    assert rig.fetch(range(9))
    rig.settle()
    assert rig.fetched == [False]
    assert rig.tier.counters.misses == {reason.value: 1}
    assert (len(rig.disk.aside), rig.disk.manifests) == (1, {})
    assert not rig.fetch(range(9))


@pytest.mark.parametrize("reason", [reason for reason in FileReason if not reason.is_of_the_file])
@pytest.mark.parametrize("phase", [CheckFile, AdoptFile])
def test_what_says_nothing_against_the_file_leaves_it_there(reason, phase):
    rig = TierRig()
    rig.saved(range(8))
    rig.files.fault = lambda work: reason if isinstance(work, phase) else None
    assert rig.fetch(range(9))
    rig.settle()
    assert (rig.tier.counters.faults, rig.tier.counters.misses) == ({reason.value: 1}, {})
    rig.now_s += 11
    rig.files.fault = lambda _: None
    assert rig.fetch(range(9))
    rig.settle()
    assert rig.fetched == [False, True]


def test_one_that_comes_while_another_gives_way_begins_when_that_has_ended():
    rig = TierRig()
    rig.saved(range(8))
    entry = rig.tier.find("s", tuple(range(9)))
    verified = []
    looks = Fetch(entry=entry, take_blocks=lambda: None, on_done=verified.append, gives_way=True)
    assert rig.tier.fetch(looks)
    assert rig.fetch(range(9))
    assert not rig.fetch(range(9))
    rig.settle()
    assert (verified, rig.fetched) == ([False], [True])
    assert entry.num_users == 0


@pytest.mark.parametrize("end", ["lost", "spoilt", "flushed"])
def test_one_behind_another_ends_once_though_there_is_nothing_left_to_fetch(end):
    rig = TierRig()
    rig.saved(range(8))
    entry = rig.tier.find("s", tuple(range(9)))
    verified = []
    looks = Fetch(entry=entry, take_blocks=lambda: None, on_done=verified.append, gives_way=True)
    assert rig.tier.fetch(looks)
    assert rig.fetch(range(9))
    match end:
        case "lost":
            rig.lose_ranks()
        case "spoilt":
            rig.files.fault = lambda _: FileReason.TORN
        case "flushed":
            rig.tier.flush(None)
    rig.settle()
    assert (verified, rig.fetched) == ([False], [False])


def test_a_disk_that_fails_a_fetch_is_not_read_for_a_while():
    rig = TierRig()
    rig.saved(range(8))
    rig.files.fault = lambda work: FileReason.IO if isinstance(work, CheckFile) else None
    assert rig.fetch(range(9))
    rig.settle()
    assert not rig.fetch(range(9))
    rig.now_s += 11
    assert rig.fetch(range(9))
    rig.settle()


def test_a_disk_that_is_full_is_read():
    rig = TierRig()
    rig.saved(range(8))
    rig.files.fault = lambda work: FileReason.NO_SPACE if isinstance(work, SaveFile) else None
    rig.saved(range(100, 108))
    assert rig.fetch(range(9))
    rig.settle()
    assert rig.fetched == [True]


def test_without_blocks_it_comes_to_nothing_and_the_file_is_let_go():
    rig = TierRig()
    rig.saved(range(8))
    assert rig.fetch(range(9), blocks=None)
    rig.settle()
    assert (rig.fetched, rig.files.checked) == ([False], {})
