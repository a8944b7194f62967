"""Images in a journal: a master that is killed leaves all that its replies depend on."""

import asyncio

import pytest

from lanehost.door.readmit import readmit
from lanehost.engine.reply import Reply
from lanehost.engine.stops import StopRules
from lanehost.engine.stream import JobStream
from lanehost.errors import NotJournaled
from lanehost.job import Job, StopParams
from lanehost.journal.recovery import recover
from lanehost.journal.segment import MAGIC, START
from tests.support.cards import make_card
from tests.support.fake_engine import EngineRig, settle_loop
from tests.support.fake_target import solo_reply
from tests.support.images import image_facts, image_job, prepared
from tests.support.jobs import WordDetokenizer, arrive, read_all, token_ids
from tests.support.journals import MODEL, finished, open_journal


def new_reply(stop, max_tokens):
    return Reply(WordDetokenizer(), StopRules(frozenset(), stop, max_tokens=max_tokens))


def found(folder):
    return recover(folder, MODEL, max_file_bytes=1 << 40).streams


def test_an_open_request_has_its_images_on_disk(tmp_path):
    job = image_job((7,), 1, (8,), 2, job_id="job-1")
    open_journal(tmp_path).accept(job, StopParams())
    (known,) = found(tmp_path).open
    assert [one.pixels for one in known.accepted.images] == [
        prepared(1).pixels,
        prepared(2).pixels,
    ]
    ticket = readmit(known, card=make_card(), new_reply=new_reply, now_s=7.0)
    assert ticket.job.images == job.images
    assert ticket.job.identity_ids == job.identity_ids


def test_an_ended_reply_has_none_in_memory_nor_in_the_next_file(tmp_path):
    journal = open_journal(tmp_path)
    journal.accept(image_job((7,), 1, job_id="job-1", max_tokens=1), StopParams())
    journal.append([("job-1", [5])])
    journal.end("job-1", finished(1))
    journal.flush()
    (kept,) = journal.streams.kept
    assert kept.accepted.images == ()
    open_journal(tmp_path)
    assert prepared(1).pixels not in b"".join(one.read_bytes() for one in files(tmp_path))


def files(folder):
    return sorted(folder.glob("*.journal"))


def test_what_no_record_can_hold_is_refused_and_leaves_no_trace(tmp_path, monkeypatch):
    monkeypatch.setattr("lanehost.journal.journal.MAX_RECORD_BYTES", 2000)
    journal = open_journal(tmp_path)
    with pytest.raises(NotJournaled, match="limit 2000"):
        journal.accept(image_job(*range(1, 9)), StopParams())
    assert found(tmp_path).num_open == 0


def test_of_a_torn_record_nothing_is_taken_and_all_before_it_stands(tmp_path):
    journal = open_journal(tmp_path)
    journal.accept(image_job((7,), 1, job_id="job-1"), StopParams())
    journal.flush()
    (path,) = files(tmp_path)
    whole = path.read_bytes().rstrip(b"\0")
    journal.accept(image_job((7,), 2, job_id="job-2"), StopParams())
    content = path.read_bytes().rstrip(b"\0")
    for length in range(len(whole) + 1, len(content), 7):
        path.write_bytes(content[:length])
        assert [one.accepted.job_id for one in found(tmp_path).open] == ["job-1"]


def test_a_journal_of_the_first_format_is_read(tmp_path):
    journal = open_journal(tmp_path)
    journal.accept(image_job((7, 8), job_id="job-1"), StopParams())
    (path,) = files(tmp_path)
    path.write_bytes(MAGIC + b"\x01\x00" + path.read_bytes()[len(START) :])
    (known,) = found(tmp_path).open
    assert known.accepted.job_id == "job-1"


def jobs() -> list[Job]:
    return [image_job((7, n), n, (8, 9), 3, job_id=f"job-{n}", max_tokens=12) for n in (1, 2)]


async def test_a_master_that_was_killed_at_any_step_goes_on_token_for_token(tmp_path):
    for num_steps in range(1, 16, 2):
        folder = tmp_path / str(num_steps)
        folder.mkdir()
        await killed_after(folder, num_steps)
        streams = recover(folder, MODEL, max_file_bytes=1 << 40).streams
        rig = EngineRig(image_facts())
        async with rig.running():
            replies = await asyncio.gather(*(go_on(rig, known) for known in streams.open))
        told = {one.accepted.job_id: one.token_ids for one in (*streams.open, *streams.kept)}
        for job in jobs():
            rest = dict(replies).get(job.job_id, [])
            assert told[job.job_id] + rest == solo_reply(job)


async def killed_after(folder, num_steps):
    """Run a master over its journal, until so many steps came back; then it is no more."""
    journal = open_journal(folder)
    rig = EngineRig(image_facts(), is_manual=True, journal=journal)
    for job in jobs():
        journal.accept(job, StopParams())
        rig.send(job)
    run = asyncio.create_task(rig.engine.run())
    for _ in range(num_steps):
        await settle_loop()
        if rig.ranks.has_outcome:
            rig.ranks.let_step_back()
    await settle_loop()
    run.cancel()
    await asyncio.wait({run})


async def go_on(rig, known):
    ticket = readmit(known, card=make_card(), new_reply=new_reply, now_s=7.0)
    ticket.stream = JobStream(ticket.job.job_id, on_cancel=lambda _: None)
    stream = arrive(ticket, rig.line, rig.inbox)
    return known.accepted.job_id, token_ids(await read_all(stream))
