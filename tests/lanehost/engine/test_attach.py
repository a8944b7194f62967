"""Streams go on over the end of a master, token for token, for whoever resumes them last."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanehost.door.readmit import MAX_RECOVERIES
from lanehost.errors import (
    Cancelled,
    Draining,
    IndexOutOfRange,
    TakenOver,
    UnknownStream,
)
from lanehost.job import Failed, Finished, Tokens
from lanehost.keys import KeyRing, Scope, digest_of
from tests.support.fake_engine import settle_loop
from tests.support.journaled import Caller, killed, living, request
from tests.support.journals import tokens_on_disk

STOPS = ({}, {"strings": (" w9", "w7 w")}, {"token_ids": (11, 12, 13)})


async def whole_replies(folder, numbers, **values):
    """The replies of an undisturbed master."""
    async with living(folder, **values) as life:
        callers = [Caller() for _ in numbers]
        streams = [await life.submit(n, **STOPS[n % 3]) for n in numbers]
        await asyncio.gather(*(c.read(s) for c, s in zip(callers, streams, strict=True)))
    return callers


def same(one, other):
    assert (one.token_ids, one.text) == (other.token_ids, other.text)
    assert isinstance(one.last, Finished)
    assert (one.last.reason, one.last.matched) == (other.last.reason, other.last.matched)
    assert one.last.usage.completion_tokens == other.last.usage.completion_tokens


async def some_reading(life, callers, turns):
    """Let callers resume where they are, or begin, and read for so many turns of the loop."""
    readers = []
    for number, caller in enumerate(callers):
        if isinstance(caller.last, Finished):
            continue
        caller.last = None
        if caller.job_id:
            stream = await life.resume(caller.job_id, len(caller.token_ids))
        else:
            stream = await life.submit(number, **STOPS[number % 3])
        readers.append(asyncio.create_task(caller.read(stream)))
    await settle_loop(turns)
    return readers


async def let_all_back(life):
    while life.rig.ranks._outcomes:
        life.rig.ranks.let_step_back()
        await settle_loop()


async def over_deaths(folder, other, lives, num_callers, max_drafts):
    callers = [Caller() for _ in range(num_callers)]
    for turns in lives:
        async with killed(folder, max_drafts=max_drafts) as life:
            readers = await some_reading(life, callers, turns)
            for reader in readers:
                reader.cancel()
            told = tokens_on_disk(folder)
            # The law: whatever a client has been told is in the file.
            for caller in callers:
                if caller.job_id:
                    on_disk = told[caller.job_id]
                    assert on_disk[: len(caller.token_ids)] == caller.token_ids
    async with living(folder, max_drafts=max_drafts) as life:
        await asyncio.gather(*await some_reading(life, callers, 0))
    for caller, whole in zip(callers, await whole_replies(other, range(num_callers)), strict=True):
        same(caller, whole)


@settings(deadline=None, max_examples=25)
@given(
    # One more death without a token, and the reply would be given up as poison.
    st.lists(st.integers(0, 40), max_size=MAX_RECOVERIES),
    st.integers(1, 5),
    st.sampled_from([0, 4]),
)
def test_over_as_many_deaths_as_are_borne_clients_have_each_token_once_and_the_undisturbed_reply(
    tmp_path_factory, lives, num_callers, max_drafts
):
    folder, other = tmp_path_factory.mktemp("lives"), tmp_path_factory.mktemp("other")
    asyncio.run(over_deaths(folder, other, lives, num_callers, max_drafts))


async def test_a_token_is_in_the_file_before_its_client_is_told(tmp_path):
    async with living(tmp_path) as life:
        seen = []
        async with await life.submit(1) as stream:
            job_id = stream.job_id
            assert tokens_on_disk(tmp_path) == {job_id: []}
            async for event in stream:
                if isinstance(event, Tokens):
                    seen += event.token_ids
                    assert tokens_on_disk(tmp_path)[job_id][: len(seen)] == seen
        assert len(seen) == 12


@pytest.mark.parametrize("next_index", range(13))
async def test_an_ended_reply_is_told_from_any_token_on(tmp_path, next_index):
    async with living(tmp_path) as life:
        whole, rest = Caller(), Caller()
        await whole.read(await life.submit(1))
        await rest.read(await life.resume(whole.job_id, next_index))
    assert rest.token_ids == whole.token_ids[next_index:]
    assert rest.text == "".join(f" w{one}" for one in rest.token_ids)
    assert rest.last == whole.last


async def test_an_index_beyond_what_there_is_is_refused_with_both_numbers(tmp_path):
    async with living(tmp_path) as life:
        whole, rest = Caller(), Caller()
        await whole.read(await life.submit(1))
        await rest.read(await life.resume(whole.job_id, 13))
    assert isinstance(rest.last.error, IndexOutOfRange)
    assert (rest.last.error.have, rest.last.error.limit) == (13, 12)
    assert rest.job_id == ""


async def test_whoever_resumes_last_has_the_stream_and_the_former_is_told(tmp_path):
    async with living(tmp_path, is_manual=True) as life:
        first, second, third = Caller(), Caller(), Caller()
        one = asyncio.create_task(first.read(await life.submit(1)))
        for _ in range(4):
            life.rig.ranks.let_step_back()
            await settle_loop()
        num_first = len(first.token_ids)
        two = asyncio.create_task(second.read(await life.resume(first.job_id, num_first)))
        await one
        assert isinstance(first.last.error, TakenOver)
        for _ in range(3):
            life.rig.ranks.let_step_back()
            await settle_loop()
        three = asyncio.create_task(third.read(await life.resume(first.job_id)))
        await two
        assert isinstance(second.last.error, TakenOver)
        await let_all_back(life)
        await three
    assert isinstance(third.last, Finished)
    assert len(third.token_ids) == 12
    told = first.token_ids + second.token_ids
    assert 0 < num_first < len(told) < 12
    assert third.token_ids[: len(told)] == told


async def test_who_had_the_stream_can_cancel_it_no_more_and_who_has_it_can(tmp_path):
    async with living(tmp_path, is_manual=True) as life:
        first = await life.submit(1)
        await settle_loop()
        second = await life.resume(first.job_id)
        await settle_loop()
        first.cancel()
        await settle_loop()
        assert life.rig.engine.num_open_jobs == 1
        second.cancel()
        await settle_loop()
        assert life.rig.engine.num_open_jobs == 0
        await let_all_back(life)
        last = Caller()
        await last.read(await life.resume(first.job_id))
        assert isinstance(last.last.error, Cancelled)


async def test_what_is_not_known_and_what_is_of_another_scope_are_the_same(tmp_path):
    keys = KeyRing(scopes=tuple(Scope(name=n, key_digests=(digest_of(f"k{n}"),)) for n in "ab"))
    async with killed(tmp_path, keys=keys) as life:
        await life.submit(1, key="ka")
        await settle_loop(6)
        (job_id,) = tokens_on_disk(tmp_path)
    async with living(tmp_path, keys=keys) as life:
        stranger, nobody, owner = Caller(), Caller(), Caller()
        await stranger.read(await life.resume(job_id, key="kb"))
        await nobody.read(await life.resume("job-of-nobody", key="kb"))
        assert isinstance(stranger.last.error, UnknownStream)
        assert str(stranger.last.error) == str(nobody.last.error)
        await owner.read(await life.resume(job_id, key="ka"))
        assert len(owner.token_ids) == 12


async def test_a_reply_that_nobody_resumes_is_finished_all_the_same(tmp_path):
    async with killed(tmp_path) as life:
        await life.submit(1)
        await settle_loop(8)
        (job_id,) = tokens_on_disk(tmp_path)
    async with living(tmp_path):
        pass
    assert len(tokens_on_disk(tmp_path)[job_id]) == 12
    async with living(tmp_path) as life:
        late = Caller()
        await late.read(await life.resume(job_id, 5))
    assert (len(late.token_ids), late.last.usage.completion_tokens) == (7, 12)


async def test_once_the_engine_has_ended_a_resumption_is_told_why(tmp_path):
    async with living(tmp_path) as life:
        whole = Caller()
        await whole.read(await life.submit(1))
    late = Caller()
    await late.read(await life.resume(whole.job_id))
    assert isinstance(late.last, Failed)
    assert isinstance(late.last.error, Draining)


def test_requests_of_the_tests_differ():
    assert request(1) != request(2)
