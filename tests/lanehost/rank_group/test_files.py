"""The files of all ranks: a work to each, one outcome when all have answered, none once lost."""

import asyncio
from dataclasses import fields

import pytest

from lanehost.disk_cache.interface import (
    AdoptFile,
    CheckFile,
    DeleteFiles,
    DropFile,
    FileHeader,
    FileName,
    FileOutcome,
    FileReason,
    SaveFile,
    SetAside,
    SweepFiles,
)
from lanehost.errors import RankGroupLost
from lanehost.rank_group.files import GroupFiles
from lanehost.rank_group.link import RankLink
from ranks.wire import file_messages as wire
from tests.support.rank_stream import StreamContext

NAME = FileName(layout="1a" * 32, key="2b" * 32)
HEADER = FileHeader(layout=NAME.layout, key=NAME.key, num_tokens=32, tokens_digest="3c" * 32)
WORKS = [
    SaveFile(order_id=1, header=HEADER, block_ids=(3, 1)),
    CheckFile(order_id=2, header=HEADER),
    AdoptFile(order_id=3, header=HEADER, block_ids=(5, 6)),
    DropFile(order_id=4, name=NAME),
    DeleteFiles(order_id=5, names=(NAME,)),
    SetAside(order_id=6, names=(NAME,)),
    SweepFiles(order_id=7, known=(NAME, NAME)),
]


class Played:
    """Files of two ranks that the test plays."""

    def __init__(self):
        self.links = [RankLink(rank=rank, pid=rank) for rank in (0, 1)]
        self.files = GroupFiles(epoch=3, links=self.links)
        self.outcomes: list[FileOutcome] = []
        self.files.tell(self.outcomes.append)

    def say(self, rank, order_id, fault=None, *, epoch=3, **more):
        done = wire.FileDone(order_id=order_id, epoch=epoch, fault=fault, **more)
        self.files.take_done(rank, done)


@pytest.fixture
def played():
    return Played()


@pytest.mark.parametrize("work", WORKS, ids=lambda work: type(work).__name__)
async def test_every_rank_hears_the_work_with_all_that_is_in_it(played, work):
    contexts = [StreamContext(), StreamContext()]
    for link in played.links:
        link.deliver_to(lambda _: None, lambda _: None)
    serving = [
        asyncio.create_task(link.serve(context))
        for link, context in zip(played.links, contexts, strict=True)
    ]
    played.files.start(work)
    heard = [await context.hear() for context in contexts]
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)
    assert heard[0] == heard[1]
    assert (heard[0].order_id, heard[0].epoch) == (work.order_id, 3)
    assert type(heard[0].work).__name__ == type(work).__name__
    _assert_same(work, heard[0].work)


def _assert_same(work, told):
    for field in fields(told):
        mine, theirs = getattr(work, field.name), getattr(told, field.name)
        match mine:
            case FileHeader():
                assert (theirs.num_tokens, theirs.tokens_digest) == (32, mine.tokens_digest)
                assert (theirs.name.layout, theirs.name.key) == (mine.layout, mine.key)
            case FileName():
                assert (theirs.layout, theirs.key) == (mine.layout, mine.key)
            case tuple() if field.name in ("names", "known"):
                assert [(n.layout, n.key) for n in theirs] == [(n.layout, n.key) for n in mine]
            case _:
                assert theirs == mine


async def test_an_outcome_waits_for_every_rank(played):
    played.files.start(WORKS[0])
    played.say(1, 1, num_bytes=20, took_ns=3 * 10**9)
    assert played.outcomes == []
    played.say(0, 1, num_bytes=10, took_ns=10**9)
    assert played.outcomes == [FileOutcome(order_id=1, num_bytes=(10, 20), seconds=3.0)]
    assert played.outcomes[0].is_done


async def test_works_end_in_any_order(played):
    played.files.start(WORKS[0])
    played.files.start(WORKS[1])
    for order_id in (2, 1):
        for rank in (0, 1):
            played.say(rank, order_id)
    assert [outcome.order_id for outcome in played.outcomes] == [2, 1]


@pytest.mark.parametrize("fault", wire.FileFault)
@pytest.mark.parametrize("rank", [0, 1])
async def test_a_work_is_done_only_where_it_is_on_all(played, rank, fault):
    played.files.start(WORKS[1])
    played.say(rank, 2, fault, message="so it is")
    played.say(1 - rank, 2, num_bytes=7)
    [outcome] = played.outcomes
    assert (outcome.reason, outcome.rank) == (FileReason(fault.value), rank)
    assert (outcome.message, outcome.is_done) == ("so it is", False)


async def test_of_several_that_say_no_the_lowest_rank_counts(played):
    played.files.start(WORKS[1])
    played.say(1, 2, wire.FileFault.TORN)
    played.say(0, 2, wire.FileFault.MISSING)
    assert (played.outcomes[0].reason, played.outcomes[0].rank) == (FileReason.MISSING, 0)


async def test_what_nobody_asked_for_changes_nothing(played):
    played.files.start(WORKS[0])
    played.say(0, 9)
    played.say(0, 1, epoch=2)
    played.say(0, 1)
    played.say(0, 1, wire.FileFault.IO)
    assert played.outcomes == []
    played.say(1, 1)
    assert [outcome.is_done for outcome in played.outcomes] == [True]


async def test_with_the_epoch_all_that_is_in_flight_is_forgotten(played):
    played.files.start(WORKS[0])
    played.say(0, 1)
    lost = RankGroupLost("gone", epoch=3, rank=1)
    played.files.lose(lost)
    played.say(1, 1)
    assert played.outcomes == []
    with pytest.raises(RankGroupLost, match="gone"):
        played.files.start(WORKS[1])


def test_both_sides_know_the_same_reasons():
    assert [fault.name for fault in wire.FileFault] == [reason.name for reason in FileReason]
    assert [fault.value for fault in wire.FileFault] == [reason.value for reason in FileReason]
