from lanehost.engine.disk_interface import NoDisk
from tests.support.fake_engine import EngineRig
from tests.support.jobs import ending, make_job


async def test_without_a_disk_there_is_nothing_to_wait_for():
    disk = NoDisk()
    assert disk.is_quiet
    rig = EngineRig()
    async with rig.running():
        events = [event async for event in rig.send(make_job(range(1, 9), max_tokens=2))]
    assert ending(events).usage.disk_cached_tokens == 0
