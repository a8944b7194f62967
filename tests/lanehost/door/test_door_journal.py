"""The door and the journal: what is accepted is appended first, and what cannot be is refused."""

import asyncio

import pytest

from lanehost.engine.inbox import Attach, Cancel, CancelCause
from lanehost.errors import NotJournaled, Overloaded
from lanehost.job import Accepted, Request, Resumption, SamplingParams, StopParams, TokenPrompt
from tests.support.door_rig import DoorRig
from tests.support.journals import SmallDisk, open_journal, tokens_on_disk


def request(**values):
    return Request(prompt=TokenPrompt((1, 2, 3)), **values)


async def test_an_accepted_request_is_on_disk_with_all_that_its_reply_depends_on(tmp_path):
    journal = open_journal(tmp_path)
    rig = DoorRig(journal=journal)
    stop = StopParams(strings=("END",), token_ids=(7,), ignore_eos=True)
    sampling = SamplingParams(temperature=0.5)
    stream = await rig.door.submit(request(max_tokens=9, stop=stop, sampling=sampling, label="me"))
    accepted = await anext(aiter(stream))
    assert isinstance(accepted, Accepted)
    record = open_journal(tmp_path).find(stream.job_id).accepted
    assert (record.prompt_ids, record.max_tokens, record.label) == ((1, 2, 3), 9, "me")
    assert (record.stop, record.draw.temperature) == (stop, 0.5)
    # The server chose the seed: a later master must not choose another.
    assert record.draw.seed == accepted.seed


async def test_what_cannot_be_journaled_is_refused_and_leaves_no_trace(tmp_path):
    disk = SmallDisk(1 << 20)
    rig = DoorRig(journal=open_journal(tmp_path, disk=disk), max_streams=1)
    disk.is_broken = True
    with pytest.raises(NotJournaled, match="Input/output error"):
        await rig.door.submit(request(max_tokens=60))
    assert (len(rig.line), rig.line.num_tokens, rig.door._turnstile.num_inside) == (0, 0, 0)
    assert rig.inbox._commands == []
    assert tokens_on_disk(tmp_path) == {}
    disk.is_broken = False
    async with await rig.door.submit(request(max_tokens=60)):
        assert len(rig.line) == 1


async def test_a_resumption_takes_a_stream_and_gives_it_back(tmp_path):
    rig = DoorRig(journal=open_journal(tmp_path), max_streams=1)
    resumption = Resumption(job_id="job-1", next_index=3)
    async with await rig.door.resume_stream(resumption) as stream:
        (attach,) = await rig.inbox.take_all()
        assert isinstance(attach, Attach)
        assert (attach.job_id, attach.next_index, attach.scope) == ("job-1", 3, "")
        assert attach.stream is stream
        with pytest.raises(Overloaded, match="--max-streams"):
            await rig.door.resume_stream(resumption)
    assert await rig.inbox.take_all() == [Cancel("job-1", CancelCause.CLIENT)]
    await rig.door.resume_stream(resumption)


async def test_the_deadline_of_a_resumption_ends_the_reply(tmp_path):
    rig = DoorRig(journal=open_journal(tmp_path))
    await rig.door.resume_stream(Resumption(job_id="job-1", next_index=0, timeout_s=0.001))
    await rig.inbox.take_all()
    async with asyncio.timeout(5):
        assert await rig.inbox.take_all() == [Cancel("job-1", CancelCause.DEADLINE)]
