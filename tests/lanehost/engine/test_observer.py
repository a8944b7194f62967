import asyncio

import pytest

from lanehost.engine.observer import EngineObserver, NoObserver
from lanehost.errors import Cancelled, RankGroupLost
from lanehost.job import Failed
from tests.support.fake_engine import EngineRig
from tests.support.fake_ranks import fake_facts
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
