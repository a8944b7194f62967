import asyncio
import inspect

import pytest
import structlog

from lanehost.engine.observer import EngineObserver, NoObserver, Observers
from lanehost.errors import Cancelled, RankGroupLost
from lanehost.job import Failed
from tests.support.fake_engine import EngineRig
from tests.support.fake_ranks import fake_facts
from tests.support.fake_target import solo_continuation
from tests.support.jobs import make_job, read_all, token_ids


class Notes(NoObserver):
    """Remembers what it was told of jobs."""

    def __init__(self):
        self.told = []

    def job_arrived(self, job):
        self.told.append(("arrived", job.job_id))

    def job_seated(self, job_id, lane_id, num_cached_tokens):
        self.told.append(("seated", job_id))

    def job_ended(self, job_id, event, token_ids):
        self.told.append(("ended", job_id, event, list(token_ids)))


def watched(facts=None):
    notes = Notes()
    return notes, EngineRig(facts, observer=notes)


def members(protocol):
    return {name for name in vars(protocol) if not name.startswith("_")}


def test_nobody_implements_the_whole_protocol():
    assert members(NoObserver) == members(EngineObserver)


async def test_each_job_is_told_of_in_order_with_the_whole_reply():
    notes, rig = watched(fake_facts(num_lanes=2))
    jobs = [make_job((1, 2, n), max_tokens=3) for n in range(5)]
    async with rig.running():
        replies = await asyncio.gather(*(read_all(rig.send(job)) for job in jobs))
    for job, events in zip(jobs, replies, strict=True):
        mine = [note for note in notes.told if note[1] == job.job_id]
        assert [note[0] for note in mine] == ["arrived", "seated", "ended"]
        assert mine[-1][2:] == (events[-1], token_ids(events))


async def test_a_cancelled_job_is_told_of_too():
    notes, rig = watched()
    async with rig.running():
        async with rig.send(make_job(max_tokens=40)) as stream:
            await anext(aiter(stream))
            job_id = stream.job_id
        await read_all(rig.send(make_job()))
    (ended,) = (note for note in notes.told if note[:2] == ("ended", job_id))
    assert isinstance(ended[2].error, Cancelled)


async def test_jobs_of_a_lost_group_are_told_of_once_each():
    notes, rig = watched()
    rig.ranks.lost_at_step = 2
    streams = [rig.send(make_job(max_tokens=9)) for _ in range(3)]
    with pytest.raises(RankGroupLost):
        await rig.engine.run()
    ended = [note for note in notes.told if note[0] == "ended"]
    assert sorted(note[1] for note in ended) == sorted(stream.job_id for stream in streams)
    assert all(isinstance(note[2], Failed) for note in ended)


class Faulty(NoObserver):
    """Fails at one call, and counts what it is told."""

    def __init__(self, fails_at):
        self._fails_at = fails_at
        self.num_told = 0

    def __getattribute__(self, name):
        if name not in members(EngineObserver):
            return super().__getattribute__(name)
        self.num_told += 1
        if name == self._fails_at:
            raise RuntimeError("broken on purpose")
        return super().__getattribute__(name)


class Echo:
    """Takes any call of an observer, and remembers it."""

    def __init__(self):
        self.told = []

    def __getattr__(self, name):
        return lambda *args: self.told.append((name, args))


@pytest.mark.parametrize("name", sorted(members(EngineObserver)))
def test_several_observers_are_each_told_all_and_the_same(name):
    echoes = Echo(), Echo()
    call = getattr(Observers(*echoes), name)
    asked = inspect.signature(getattr(EngineObserver, name)).parameters.keys() - {"self"}
    assert inspect.signature(call).parameters.keys() == asked
    args = tuple(object() for _ in asked)
    call(*args)
    assert [echo.told for echo in echoes] == [[(name, args)]] * 2


@pytest.mark.parametrize("name", ["job_arrived", "job_seated", "step_ended", "job_ended"])
async def test_a_fault_of_an_observer_harms_no_reply_and_no_other_observer(name):
    faulty, notes = Faulty(name), Notes()
    observers = Observers(faulty, notes)
    rig = EngineRig(observer=observers)
    jobs = [make_job((1, 2, n), max_tokens=3) for n in range(3)]
    with structlog.testing.capture_logs() as logs:
        async with rig.running():
            replies = await asyncio.gather(*(read_all(rig.send(job)) for job in jobs))
    for job, events in zip(jobs, replies, strict=True):
        assert token_ids(events) == solo_continuation(job.prompt_ids, job.draw, 3)
    assert [note[0] for note in notes.told].count("ended") == 3
    assert observers.num_failed == 1
    (failed,) = (entry for entry in logs if entry["event"] == "observer_failed")
    (fault,) = (entry for entry in logs if entry["event"] == "internal_fault")
    assert (failed["observer"], failed["record_id"]) == ("Faulty", fault["record_id"])


def test_an_observer_that_failed_is_told_nothing_more():
    faulty, notes = Faulty("job_arrived"), Notes()
    observers = Observers(faulty, notes)
    for _ in range(3):
        observers.job_arrived(make_job())
    observers.job_parked("1")
    assert faulty.num_told == 1
    assert len(notes.told) == 3
