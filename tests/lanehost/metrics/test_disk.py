from lanehost.disk_cache.interface import CheckFile, FileReason
from lanehost.metrics.disk import DISK, DROPPED
from tests.support.fake_engine import settle_loop
from tests.support.fake_files import FakeDisk
from tests.support.jobs import make_job, read_all
from tests.support.metered import MeteredRig

PROMPT = tuple(range(1, 22))


async def test_without_a_disk_all_is_0():
    rig = MeteredRig()
    values = rig.values()
    told = {name: value for name, value in values.items() if name[0].startswith("lanehost_disk")}
    assert len({name[0] for name in told}) == len(DISK)
    assert set(told.values()) == {0}


async def test_saves_and_hits_are_told():
    disk = FakeDisk()
    rig = MeteredRig(disk=disk)
    async with rig.running():
        await read_all(rig.send(make_job(PROMPT, max_tokens=3)))
    assert rig.value("disk_cache_saves_total") == 1
    assert rig.value("disk_cache_bytes") == rig.value("disk_cache_saved_bytes_total") == 200
    assert rig.value("disk_cache_budget_bytes") == 10_000
    rig = MeteredRig(disk=disk)
    async with rig.running():
        await read_all(rig.send(make_job(PROMPT, max_tokens=3)))
    assert rig.value("disk_cache_hits_total") == 1
    assert rig.value("disk_cache_hit_tokens_total") == 20
    assert rig.value("disk_cache_entries") == 1


async def test_misses_are_told_by_their_reason():
    disk = FakeDisk()
    rig = MeteredRig(disk=disk)
    async with rig.running():
        await read_all(rig.send(make_job(PROMPT, max_tokens=3)))
        await settle_loop()
        rig.engine.cache.clear()
        rig.ranks.files.fault = lambda work: (
            FileReason.TORN if isinstance(work, CheckFile) else None
        )
        await read_all(rig.send(make_job(PROMPT, max_tokens=3)))
    assert rig.value("disk_cache_misses_total", "torn") == 1
    assert rig.value("disk_cache_misses_total", "checksum") == 0


async def test_why_a_save_was_dropped_is_one_of_those_that_are_told():
    rig = MeteredRig(disk=FakeDisk(), disk_budget=100)
    async with rig.running():
        await read_all(rig.send(make_job(PROMPT, max_tokens=3)))
    assert rig.disk.tier.counters.dropped == {"budget": 1}
    assert "budget" in DROPPED
    assert rig.value("disk_cache_dropped_total", "budget") == 1
