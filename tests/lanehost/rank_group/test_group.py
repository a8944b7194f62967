"""The group: one plan to all, an outcome when all have answered and agree, or a loss for all."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.disk_cache.interface import CheckFile, FileHeader
from lanehost.errors import RankGroupLost
from lanehost.rank_group.group import RankGroup, find_disagreement
from lanehost.rank_group.link import RankLink
from ranks.plan import RefusalKind, StepPlan, StepRefused, StepResult
from ranks.wire.file_messages import FileDone, FileFault
from tests.support.rank_facts import facts
from tests.support.rank_stream import StreamContext

D = bytes(16)
HEADER = FileHeader(layout="00" * 32, key="11" * 32, num_tokens=16, tokens_digest="22" * 32)


def result(step_id, *, digest=D, drawn=None, epoch=1):
    return StepResult(step_id=step_id, epoch=epoch, drawn=drawn or {}, failures={}, digest=digest)


def refused(step_id, reason="no", kind=RefusalKind.MISMATCH):
    return StepRefused(step_id=step_id, epoch=1, kind=kind, reason=reason)


def failed(step_id, reason="no room"):
    return refused(step_id, reason, RefusalKind.FAILED)


def plan(step_id):
    return StepPlan(step_id=step_id, epoch=1, digest=D)


@dataclass
class Played:
    """A group of two whose ranks the test plays."""

    group: RankGroup
    ranks: list[StreamContext]
    lost: list[RankGroupLost] = field(default_factory=list)


def lose(group, rank, reason):
    group.lose(RankGroupLost(reason, epoch=1, rank=rank))


@asynccontextmanager
async def played_group(**settings):
    links = [RankLink(rank=rank, pid=rank) for rank in (0, 1)]
    contexts = [StreamContext(), StreamContext()]
    lost = []
    group = RankGroup(facts=facts(), links=links, on_lost=lost.append, **settings)
    for link in links:
        link.deliver_to(partial(group.take_answer, link.rank), partial(lose, group, link.rank))
    serving = [asyncio.create_task(link.serve(c)) for link, c in zip(links, contexts, strict=True)]
    try:
        yield Played(group=group, ranks=contexts, lost=lost)
    finally:
        group.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


async def test_every_rank_gets_the_very_same_bytes():
    async with played_group() as played:
        played.group.submit(plan(1))
        first, second = [await rank.to_rank.get() for rank in played.ranks]
        assert first is second


async def test_an_outcome_waits_for_every_rank():
    async with played_group() as played:
        played.group.submit(plan(1))
        outcome = asyncio.create_task(played.group.next_outcome())
        played.ranks[0].say(result(1, drawn={2: 5}))
        await settle()
        assert not outcome.done()
        played.ranks[1].say(result(1, drawn={2: 5}))
        assert (await outcome).drawn == {2: 5}


async def test_outcomes_come_in_step_order_whatever_the_ranks_pace():
    async with played_group() as played:
        played.group.submit(plan(1))
        played.group.submit(plan(2))
        for rank in (1, 0):
            played.ranks[rank].say(result(1))
            played.ranks[rank].say(result(2))
            await settle()
        assert [(await played.group.next_outcome()).step_id for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("kind", RefusalKind)
async def test_a_step_that_all_refuse_is_refused_and_the_group_goes_on(kind):
    async with played_group() as played:
        played.group.submit(plan(1))
        played.ranks[0].say(refused(1, "no room", kind))
        played.ranks[1].say(refused(1, "other words", kind))
        assert await played.group.next_outcome() == refused(1, "no room", kind)
        played.group.submit(plan(2))
        for rank in played.ranks:
            rank.say(result(2))
        assert (await played.group.next_outcome()).step_id == 2


WRONG = {
    "step 1 gave digest 0000.* on rank 0, 0101.* on rank 1": (
        result(1),
        result(1, digest=b"\x01" * 16),
    ),
    "rank 1 refused step 1 that others ran: no": (result(1), refused(1)),
    "rank 0 refused step 1 that others ran: no": (refused(1), result(1)),
    "rank 1 refused step 1 that others ran: no room": (result(1), failed(1)),
    r"step 1 was refused by rank 0 as failed \(no room\), rank 1 as mismatch \(no\)": (
        failed(1),
        refused(1),
    ),
    r"step 1 was refused by rank 0 as skipped \(no\), rank 1 as failed \(no room\)": (
        refused(1, kind=RefusalKind.SKIPPED),
        failed(1),
    ),
    "rank 0 answered step 2 of epoch 1, due is step 1 of epoch 1": (result(2), result(1)),
    "rank 1 answered step 1 of epoch 2, due is step 1": (result(1), result(1, epoch=2)),
}


@pytest.mark.parametrize("says", WRONG)
async def test_ranks_that_are_out_of_step_lose_the_group_by_name(says):
    async with played_group() as played:
        played.group.submit(plan(1))
        for rank, answer in zip(played.ranks, WRONG[says], strict=True):
            rank.say(answer)
        with pytest.raises(RankGroupLost, match=f"out of step: {says}"):
            await played.group.next_outcome()
        with pytest.raises(RankGroupLost):
            played.group.submit(plan(2))
        assert len(played.lost) == 1


async def test_a_rank_that_does_not_follow_one_that_failed_soon_loses_the_group():
    async with played_group(fellows_grace_s=0.0) as played:
        played.group.submit(plan(1))
        played.group.submit(plan(2))
        played.ranks[1].say(failed(1))
        played.ranks[1].say(refused(2, kind=RefusalKind.SKIPPED))
        error = await asyncio.wait_for(played.group.lost(), 5)
        assert str(error) == (
            "out of step: rank 1 could not run step 1, and rank 0 has said nothing of it for 0.0 s"
        )
        assert error.rank == 0


async def test_a_rank_that_followed_in_time_is_not_missed_later():
    async with played_group() as played:
        played.group.submit(plan(1))
        for rank in played.ranks:
            rank.say(failed(1))
        await settle()
        played.group._see_fellows_of(0, 1)
        assert await played.group.next_outcome() == failed(1)
        played.group._see_fellows_of(0, 1)
        assert played.lost == []


async def test_an_answer_that_nobody_asked_for_loses_the_group():
    async with played_group() as played:
        played.ranks[1].say(result(1))
        error = await asyncio.wait_for(played.group.lost(), 5)
        assert "due is step None" in str(error)


async def test_a_lost_rank_ends_the_wait_at_once_and_all_later_ones():
    async with played_group() as played:
        played.group.submit(plan(1))
        outcome = asyncio.create_task(played.group.next_outcome())
        lost = asyncio.create_task(played.group.lost())
        await settle()
        played.ranks[1].hang_up()
        with pytest.raises(RankGroupLost, match="rank 1 ended its stream") as error:
            await asyncio.wait_for(outcome, 5)
        assert error.value.rank == 1
        assert await lost is played.lost[0]
        with pytest.raises(RankGroupLost):
            await played.group.next_outcome()


async def test_the_first_reason_of_a_loss_stays():
    async with played_group() as played:
        played.ranks[1].hang_up()
        await played.group.lost()
        played.ranks[0].hang_up()
        await settle()
        assert [error.rank for error in played.lost] == [1]


async def test_closing_on_purpose_wakes_who_waits_and_is_no_loss():
    async with played_group() as played:
        outcome = asyncio.create_task(played.group.next_outcome())
        await settle()
        played.group.close()
        with pytest.raises(RankGroupLost, match="was stopped"):
            await outcome
        assert played.lost == []


async def test_no_third_plan_is_in_flight():
    async with played_group() as played:
        played.group.submit(plan(1))
        played.group.submit(plan(2))
        with pytest.raises(AssertionError, match="step 3"):
            played.group.submit(plan(3))


async def test_a_rank_owes_the_oldest_step_that_it_has_not_answered():
    async with played_group() as played:
        owed = played.group.owed_step
        assert owed(0) is None
        played.group.submit(plan(1))
        played.group.submit(plan(2))
        played.group.take_answer(0, result(1))
        assert (owed(0), owed(1)) == (2, 1)


async def test_it_has_run_a_step_once_all_have_given_a_result():
    async with played_group() as played:
        played.group.submit(plan(1))
        for rank in (0, 1):
            played.group.take_answer(rank, refused(1))
        await played.group.next_outcome()
        assert not played.group.has_run_step
        played.group.submit(plan(2))
        for rank in (0, 1):
            played.group.take_answer(rank, result(2))
        await played.group.next_outcome()
        assert played.group.has_run_step


@given(st.lists(st.sampled_from([None, *RefusalKind]), min_size=1, max_size=4))
def test_ranks_agree_only_when_all_ran_or_all_refused_alike(kinds):
    answers = {
        rank: result(1) if kind is None else refused(1, str(rank), kind)
        for rank, kind in enumerate(kinds)
    }
    assert (find_disagreement(answers) is None) == (len(set(kinds)) == 1)


async def test_answers_about_files_go_to_the_files_of_this_epoch_and_lose_nobody():
    async with played_group() as played:
        outcomes = []
        played.group.files.tell(outcomes.append)
        played.group.files.start(CheckFile(order_id=5, header=HEADER))
        played.ranks[0].say(FileDone(order_id=5, epoch=1))
        played.ranks[1].say(FileDone(order_id=5, epoch=1, fault=FileFault.TORN))
        played.ranks[1].say(FileDone(order_id=6, epoch=7))
        await settle()
        assert [(one.order_id, one.rank) for one in outcomes] == [(5, 1)]
        assert played.lost == []


async def test_with_the_group_its_files_are_lost():
    async with played_group() as played:
        lose(played.group, 1, "gone")
        with pytest.raises(RankGroupLost, match="gone"):
            played.group.files.start(CheckFile(order_id=5, header=HEADER))
