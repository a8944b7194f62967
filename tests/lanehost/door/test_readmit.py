"""A reply of an earlier master goes on, has ended already, or is given up by name."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from lanehost.door.readmit import MAX_RECOVERIES, readmit
from lanehost.engine.reply import Reply
from lanehost.engine.stops import StopRules
from lanehost.errors import DoesNotFit, InvalidRequest, PoisonedRequest
from lanehost.job import DiskUse, FinishReason, StopParams
from lanehost.journal.records import JournalImage
from lanehost.journal.recovery import recover
from lanehost.journal.streams import KnownStream
from lanehost.keys import KeyRing, Scope, digest_of
from ranks.plan import Draw
from tests.support.cards import make_card
from tests.support.door_rig import DoorRig
from tests.support.jobs import BrokenDetokenizer, WordDetokenizer, make_job
from tests.support.journals import MODEL, accepted, open_journal, tokens_on_disk


def new_reply(stop, max_tokens):
    return Reply(WordDetokenizer(), StopRules(frozenset({2}), stop, max_tokens=max_tokens))


def taken_up(record, token_ids=(), *, num_recoveries=0):
    known = KnownStream(accepted=record, token_ids=list(token_ids), num_recoveries=num_recoveries)
    return readmit(known, card=make_card(), new_reply=new_reply, now_s=7.0)


def test_it_goes_on_from_its_prompt_and_the_tokens_on_record():
    ticket = taken_up(accepted(label="mine", marks=(1,)), (5, 6))
    job = ticket.job
    assert ticket.sequence.token_ids == (*job.prompt_ids, 5, 6)
    assert (job.job_id, job.label, job.marks, job.arrived_s) == ("job-1", "mine", (1,), 7.0)
    assert (job.deadline_s, ticket.num_given, ticket.reply.num_tokens) == (None, 2, 2)


@pytest.mark.parametrize("use", DiskUse)
def test_what_it_lets_the_disk_do_goes_on_too(tmp_path, use):
    journal = open_journal(tmp_path)
    journal.accept(make_job(disk_use=use), StopParams())
    journal.close()
    (known,) = recover(tmp_path, MODEL, max_file_bytes=1 << 40).streams.open
    assert taken_up(known.accepted).job.disk_use is use


@pytest.mark.parametrize(
    ("values", "token_ids", "reason", "matched"),
    [
        ({"max_tokens": 2}, (5, 6), FinishReason.LENGTH, None),
        ({}, (5, 2), FinishReason.EOS, 2),
        ({"stop": StopParams(strings=("w6",))}, (5, 6), FinishReason.STOP, "w6"),
    ],
)
def test_one_whose_end_alone_was_lost_has_ended(values, token_ids, reason, matched):
    event = taken_up(accepted(**values), token_ids)
    assert (event.reason, event.matched) == (reason, matched)
    assert event.usage.completion_tokens == len(token_ids)
    assert event.usage.prompt_tokens == 3


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"label": "x" * 300}, InvalidRequest),
        ({"prompt_ids": ()}, InvalidRequest),
        ({"prompt_ids": (70_000,)}, InvalidRequest),
        ({"stop": StopParams(strings=("",))}, InvalidRequest),
        ({"draw": Draw(temperature=float("nan"))}, InvalidRequest),
        ({"draw": Draw(seed=-1)}, InvalidRequest),
        ({"max_tokens": 1 << 40}, DoesNotFit),
    ],
)
def test_what_is_no_request_to_this_server_is_not_taken_up(values, error):
    with pytest.raises(error):
        taken_up(accepted(**values))


IMAGE = JournalImage(start=0, num_tokens=2, digest=bytes(32), width=1, height=2, pixels=bytes(6))


@pytest.mark.parametrize(
    "images",
    [
        pytest.param((replace(IMAGE, start=2),), id="past the prompt"),
        pytest.param((IMAGE, replace(IMAGE, start=1)), id="across another"),
        pytest.param((replace(IMAGE, num_tokens=0),), id="of no tokens"),
        pytest.param((replace(IMAGE, pixels=b""),), id="without its pixels"),
    ],
)
def test_nor_are_images_that_are_not_whole(images):
    assert taken_up(accepted(images=(IMAGE,))).job.images[0].image.pixels == IMAGE.pixels
    with pytest.raises(InvalidRequest, match="images\\["):
        taken_up(accepted(images=images))


def test_nor_are_tokens_that_the_model_does_not_have():
    with pytest.raises(InvalidRequest, match="70000"):
        taken_up(accepted(), (5, 70_000))


def test_one_with_which_masters_died_again_and_again_is_given_up():
    assert taken_up(accepted(), num_recoveries=MAX_RECOVERIES).num_given == 0
    with pytest.raises(PoisonedRequest, match="4 masters"):
        taken_up(accepted(), num_recoveries=MAX_RECOVERIES + 1)


def leave(folder, *records):
    """Leave a journal with these open replies."""
    journal = open_journal(folder)
    for record in records:
        journal._streams.apply(record)
    assert journal._compact()


async def test_open_replies_go_to_the_head_of_the_line_in_their_order(tmp_path):
    leave(tmp_path, accepted(1), accepted(2), accepted(3))
    journal = open_journal(tmp_path)
    rig = DoorRig(journal=journal, max_waiting=1)
    rig.door.readmit(journal)
    assert [ticket.job.job_id for ticket in await rig.arrived()] == ["job-1", "job-2", "job-3"]
    assert [rig.line.take_head().job.job_id for _ in range(3)] == ["job-1", "job-2", "job-3"]


async def test_who_cannot_go_on_is_given_up_by_name_and_the_others_go_on(tmp_path):
    bad = replace(accepted(2), prompt_ids=(70_000,))
    of_another = replace(accepted(3), scope="gone")
    leave(tmp_path, accepted(1), bad, of_another)
    journal = open_journal(tmp_path)
    rig = DoorRig(journal=journal)
    with capture_logs() as logs:
        rig.door.readmit(journal)
    reasons = {line["job_id"]: line["reason"] for line in logs}
    assert reasons.keys() == {"job-2", "job-3"}
    assert "no key of this server opens the scope 'gone'" in reasons["job-3"]
    assert [ticket.job.job_id for ticket in await rig.arrived()] == ["job-1"]
    assert tokens_on_disk(tmp_path) == {"job-1": []}


async def test_with_keys_a_scope_that_they_open_goes_on(tmp_path):
    leave(tmp_path, replace(accepted(1), scope="a"), accepted(2))
    journal = open_journal(tmp_path)
    rig = DoorRig(
        journal=journal, keys=KeyRing(scopes=(Scope(name="a", key_digests=(digest_of("ka"),)),))
    )
    rig.door.readmit(journal)
    assert [ticket.job.job_id for ticket in await rig.arrived()] == ["job-1"]


async def test_a_fault_in_one_replys_text_gives_up_that_one(tmp_path, monkeypatch):
    leave(tmp_path, accepted(1), accepted(2))
    journal = open_journal(tmp_path)
    journal.append([("job-1", [5])])
    rig = DoorRig(journal=journal)
    broken = BrokenDetokenizer()
    monkeypatch.setattr(rig.door._text.tokenizer, "new_detokenizer", lambda: broken, raising=False)
    with capture_logs() as logs:
        rig.door.readmit(journal)
    given_up = [line for line in logs if line["event"] == "stream_given_up"]
    assert [line["job_id"] for line in given_up] == ["job-1"]
    assert "internal error, record" in given_up[0]["reason"]


async def test_an_end_that_was_lost_is_written(tmp_path):
    leave(tmp_path, accepted(1, max_tokens=1))
    journal = open_journal(tmp_path)
    journal.append([("job-1", [5])])
    rig = DoorRig(journal=journal)
    rig.door.readmit(journal)
    assert rig.inbox._commands == []
    assert open_journal(tmp_path).streams.num_kept == 1
