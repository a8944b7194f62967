import asyncio
import threading

import pytest

from lanehost.engine.inbox import Cancel, CancelCause, Drain
from lanehost.errors import (
    DeadlinePassed,
    DoesNotFit,
    Draining,
    InvalidRequest,
    Overloaded,
    RankGroupLost,
)
from lanehost.job import (
    Accepted,
    ChatMessage,
    ChatPrompt,
    Request,
    Role,
    SamplingParams,
    StopParams,
    TextPrompt,
    TokenPrompt,
)
from ranks.plan import Draw
from tests.support.door_rig import DoorRig
from tests.support.fake_engine import EngineRig
from tests.support.fake_target import solo_continuation
from tests.support.fake_text import LetterTokenizer
from tests.support.jobs import ending, read_all, token_ids


def request(prompt=None, **values):
    return Request(prompt=prompt or TokenPrompt((1, 2, 3)), **values)


async def test_an_accepted_request_stands_in_the_line_and_the_engine_is_told():
    rig = DoorRig()
    stream = await rig.door.submit(request(max_tokens=5, label="mine"))
    (ticket,) = await rig.arrived()
    assert ticket.job.prompt_ids == (1, 2, 3)
    assert (ticket.job.max_tokens, ticket.job.label) == (5, "mine")
    assert rig.line.head() is ticket.sequence
    assert ticket.stream is stream


async def test_accepted_names_the_seed_that_gives_the_same_reply_again():
    rig = DoorRig()
    stream = await rig.door.submit(request(sampling=SamplingParams(temperature=1.0)))
    (ticket,) = await rig.arrived()
    first = await anext(aiter(stream))
    assert first == Accepted(job_id=ticket.job.job_id, seed=ticket.job.draw.seed, prompt_tokens=3)


async def test_two_requests_without_a_seed_get_different_ones():
    rig = DoorRig()
    for _ in range(2):
        await rig.door.submit(request())
    first, second = await rig.arrived()
    assert first.job.draw.seed != second.job.draw.seed


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        (TextPrompt("ab"), (97, 98)),
        (ChatPrompt((ChatMessage(role=Role.USER, content="b"),)), tuple(b"<user>b")),
        (TokenPrompt((4, 5)), (4, 5)),
    ],
)
async def test_every_kind_of_prompt_becomes_ids(prompt, ids):
    rig = DoorRig()
    await rig.door.submit(request(prompt))
    (ticket,) = await rig.arrived()
    assert ticket.job.prompt_ids == ids


REFUSALS = {
    "empty text": (request(TextPrompt("")), InvalidRequest),
    "unknown id": (request(TokenPrompt((999,))), InvalidRequest),
    "template says no": (
        request(ChatPrompt((ChatMessage(role=Role.USER, content="raise"),))),
        InvalidRequest,
    ),
    "too long": (request(TokenPrompt((1,) * 4097)), DoesNotFit),
    "text too long": (request(TextPrompt("a" * 5000)), DoesNotFit),
    "bad sampling": (request(sampling=SamplingParams(top_p=2.0)), InvalidRequest),
    "bad stop": (request(stop=StopParams(strings=("",))), InvalidRequest),
    "bad max_tokens": (request(max_tokens=-1), InvalidRequest),
    "bad label": (request(label="x" * 300), InvalidRequest),
    "no time left": (request(timeout_s=0.0), DeadlinePassed),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refused_request_leaves_no_trace(name):
    refused, error = REFUSALS[name]
    rig = DoorRig(max_waiting=1, max_streams=1)
    for _ in range(3):
        with pytest.raises(error):
            await rig.door.submit(refused)
    assert len(rig.line) == 0
    await rig.door.submit(request())


async def test_a_chat_without_a_template_is_refused_with_what_to_do():
    rig = DoorRig(has_template=False)
    prompt = ChatPrompt((ChatMessage(role=Role.USER, content="hi"),))
    with pytest.raises(InvalidRequest, match="no chat template; send text or token ids"):
        await rig.door.submit(request(prompt))


async def test_a_full_line_refuses_at_once():
    rig = DoorRig(max_waiting=2)
    for _ in range(2):
        await rig.door.submit(request())
    for _ in range(3):
        with pytest.raises(Overloaded, match="limit 2"):
            await rig.door.submit(request())
    assert repr(rig.door) == "<AdmissionDoor open=True streams=2>"


async def test_too_many_waiting_tokens_are_refused_and_the_place_is_given_back():
    rig = DoorRig(max_waiting_tokens=5)
    await rig.door.submit(request())
    for _ in range(3):
        with pytest.raises(Overloaded, match="limit 5"):
            await rig.door.submit(request())
    assert repr(rig.door) == "<AdmissionDoor open=True streams=1>"


async def test_open_streams_are_bounded_until_their_readers_leave():
    rig = DoorRig(max_streams=1)
    stream = await rig.door.submit(request())
    with pytest.raises(Overloaded, match=r"limit 1 \(--max-streams\)"):
        await rig.door.submit(request())
    async with stream:
        pass
    await rig.door.submit(request())


async def test_a_closed_door_refuses():
    rig = DoorRig()
    assert rig.door.is_serving()
    rig.door.close(Draining("over"))
    assert not rig.door.is_serving()
    with pytest.raises(Draining):
        await rig.door.submit(request())


async def test_a_door_that_closes_while_a_prompt_is_prepared_refuses_it_and_keeps_nothing():
    rig = DoorRig(max_waiting=1, max_streams=1)
    submitting = asyncio.create_task(rig.door.submit(request(TextPrompt("abc"))))
    await asyncio.sleep(0)
    rig.door.close(Draining("over"))
    with pytest.raises(Draining):
        await submitting
    assert (len(rig.line), repr(rig.door)) == (0, "<AdmissionDoor open=False streams=0>")


async def test_what_a_closed_door_says_is_what_it_was_closed_with():
    rig = DoorRig()
    lost = RankGroupLost("rank 1 is gone", epoch=1, rank=1)
    rig.door.close(lost)
    for _ in range(3):
        with pytest.raises(RankGroupLost) as caught:
            await rig.door.submit(request())
        assert caught.value is lost
    with pytest.raises(RankGroupLost):
        await rig.door.tokenize(TextPrompt("a"), key=None)


async def test_counts_are_judged_before_ids_are_looked_at():
    with pytest.raises(DoesNotFit):
        await DoorRig().door.submit(request(TokenPrompt((999,) * 5000)))


async def test_a_deadline_that_passes_while_the_prompt_is_prepared_is_the_door_s():
    rig = DoorRig()
    gate = threading.Event()

    class SlowTokenizer(LetterTokenizer):
        def encode(self, text):
            gate.wait(5)
            return super().encode(text)

    object.__setattr__(rig.door._preparer._text, "tokenizer", SlowTokenizer())
    with pytest.raises(DeadlinePassed, match="admission"):
        await rig.door.submit(request(TextPrompt("abc"), timeout_s=0.02))
    gate.set()
    assert repr(rig.door) == "<AdmissionDoor open=True streams=0>"


async def test_a_bug_while_a_job_is_made_keeps_no_place_and_no_stream():
    rig = DoorRig(max_waiting=1, max_streams=1)

    class Broken(LetterTokenizer):
        def new_detokenizer(self):
            raise ZeroDivisionError

    object.__setattr__(rig.door._text, "tokenizer", Broken())
    with pytest.raises(ZeroDivisionError):
        await rig.door.submit(request())
    assert repr(rig.door) == "<AdmissionDoor open=True streams=0>"
    assert repr(rig.line) == "<Line 0 jobs, 0 promised>"


async def test_tokenizing_takes_a_place_in_the_line():
    rig = DoorRig(max_waiting=1)
    await rig.door.submit(request())
    with pytest.raises(Overloaded):
        await rig.door.tokenize(TextPrompt("a"), key=None)


async def test_a_client_that_leaves_takes_the_cancel_path():
    rig = DoorRig()
    stream = await rig.door.submit(request())
    async with stream:
        pass
    commands = await rig.inbox.take_all()
    assert commands[-1] == Cancel(stream.job_id, CancelCause.CLIENT)


async def test_a_deadline_takes_the_same_path():
    rig = DoorRig()
    stream = await rig.door.submit(request(timeout_s=0.01))
    await rig.inbox.take_all()
    assert await rig.inbox.take_all() == [Cancel(stream.job_id, CancelCause.DEADLINE)]


async def test_a_deadline_of_a_stream_that_closed_is_forgotten():
    rig = DoorRig()
    async with await rig.door.submit(request(timeout_s=0.01)):
        pass
    await rig.inbox.take_all()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(rig.inbox.take_all(), 0.05)


async def test_a_client_that_leaves_while_its_prompt_is_prepared_gives_its_place_back():
    rig = DoorRig(max_waiting=1, max_streams=1)
    submitting = asyncio.create_task(rig.door.submit(request(TextPrompt("abc"))))
    await asyncio.sleep(0)
    submitting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await submitting
    await rig.door.submit(request())


async def test_tokenize_gives_the_ids_that_submit_would_run():
    rig = DoorRig()
    assert await rig.door.tokenize(TextPrompt("ab"), key=None) == [97, 98]
    with pytest.raises(InvalidRequest):
        await rig.door.tokenize(TextPrompt(""), key=None)


async def test_detokenize_gives_text_and_refuses_unknown_and_too_many_ids():
    door = DoorRig().door
    assert await door.detokenize((97, 98), keep_special=False, key=None) == "ab"
    assert await door.detokenize((97,), keep_special=True, key=None) == "a!"
    with pytest.raises(InvalidRequest, match="id 251, allowed is 0 to 250"):
        await door.detokenize((251,), keep_special=False, key=None)
    with pytest.raises(InvalidRequest, match="has 4097 ids, limit 4096"):
        await door.detokenize((1,) * 4097, keep_special=False, key=None)


async def test_door_and_engine_together_give_the_solo_reply():
    engine = EngineRig()
    rig = DoorRig(engine=engine)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(engine.engine.run())
        stream = await rig.door.submit(request(TextPrompt("abc"), max_tokens=5))
        events = await read_all(stream)
        engine.inbox.put(Drain())
    job_draw = events[0]
    assert isinstance(job_draw, Accepted)
    expected = solo_continuation(tuple(b"abc"), Draw(seed=job_draw.seed), 5)
    assert token_ids(events) == expected
    assert ending(events).usage.completion_tokens == 5
    engine.check_all_free()


async def test_a_job_knows_where_its_chat_may_part_from_others():
    rig = DoorRig()
    said = (
        ChatMessage(role=Role.SYSTEM, content="be brief"),
        ChatMessage(role=Role.USER, content="hi"),
    )
    await rig.door.submit(request(ChatPrompt(said)))
    (ticket,) = await rig.arrived()
    parts = [bytes(ticket.job.prompt_ids[:mark]).decode() for mark in ticket.job.marks]
    assert parts
    assert all("be brief" in part and "hi" not in part for part in parts)
