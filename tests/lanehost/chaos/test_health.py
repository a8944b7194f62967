from lanehost.chaos.health import HealthSeen, health_watched
from tests.support.fake_door import FakeDoor
from tests.support.served_door import serve


async def test_a_watcher_sees_every_change_and_the_end():
    async with serve(FakeDoor()) as served, health_watched(served.address) as seen:
        assert await seen.wait_for(is_serving=True, within_s=10)
        served.health.set_not_serving()
        assert await seen.wait_for(is_serving=False, within_s=10)
        served.health.set_serving()
        assert await seen.wait_for(is_serving=True, within_s=10)
        await served.server.stop(None)
        assert await seen.wait_for(is_serving=False, within_s=10)
    assert [is_serving for _, is_serving in seen.changes] == [True, False, True, False]


def test_the_lag_is_from_the_fault_to_the_next_word_that_it_does_not_serve():
    seen = HealthSeen()
    seen.changes = [(1.0, True), (2.0, False), (3.0, True)]
    assert seen.lag_s(1.5) == 0.5
    assert seen.lag_s(2.5) is None  # it did not serve
    assert seen.lag_s(3.5) is None  # nothing was said since
    assert seen.lag_s(0.5) is None


async def test_what_does_not_come_in_time_is_said_to():
    assert not await HealthSeen().wait_for(is_serving=True, within_s=0.01)
