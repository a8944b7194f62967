"""The images of all ranks: the same to each, one outcome when all have answered, none once lost."""

import asyncio

import pytest

from lanehost.errors import RankGroupLost
from lanehost.rank_group.image_interface import ImageOutcome, ImageReason
from lanehost.rank_group.images import GroupImages
from lanehost.rank_group.link import RankLink
from ranks.wire.image_messages import CancelImage, DropImage, EncodeImage, ImageDone, ImageFault
from tests.support.images import prepared
from tests.support.rank_stream import StreamContext

DIGEST = bytes(16)
LOST = RankGroupLost("gone", epoch=3, rank=0)


class Played:
    """Images of two ranks that the test plays."""

    def __init__(self):
        self.links = [RankLink(rank=rank, pid=rank) for rank in (0, 1)]
        self.differences: list[str] = []
        self.images = GroupImages(epoch=3, links=self.links, on_differ=self.differences.append)
        self.outcomes: list[ImageOutcome] = []
        self.images.tell(self.outcomes.append)

    def say(self, rank, image_id, fault=None, *, epoch=3, **more):
        usual = {"num_tokens": 4, "rows_digest": DIGEST} if fault is None else {}
        done = ImageDone(image_id=image_id, epoch=epoch, fault=fault, **(usual | more))
        self.images.take_done(rank, done)

    async def hear(self, num_orders):
        """Return what each rank hears."""
        contexts = [StreamContext(), StreamContext()]
        for link in self.links:
            link.deliver_to(lambda _: None, lambda _: None)
        serving = [
            asyncio.create_task(link.serve(context))
            for link, context in zip(self.links, contexts, strict=True)
        ]
        heard = [[await context.hear() for _ in range(num_orders)] for context in contexts]
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        return heard


@pytest.fixture
def played():
    return Played()


async def test_every_rank_hears_the_same_in_the_same_order(played):
    image = prepared(7)
    played.images.encode(5, image)
    played.images.cancel(5)
    played.images.drop(5)
    first, second = await played.hear(3)
    assert first == second
    assert {order.epoch for order in first} == {3}
    assert [order.work for order in first] == [
        EncodeImage(
            image_id=5,
            digest=image.digest.hex(),
            width=image.width,
            height=image.height,
            pixels=image.pixels,
        ),
        CancelImage(image_id=5),
        DropImage(image_id=5),
    ]


async def test_an_outcome_is_told_once_when_all_have_answered(played):
    played.images.encode(5, prepared(1))
    played.say(1, 5, took_ns=2_000_000_000)
    assert played.outcomes == []
    played.say(0, 5, took_ns=1_000_000_000)
    played.say(0, 5)
    assert played.outcomes == [ImageOutcome(image_id=5, num_tokens=4, seconds=2.0)]


async def test_rows_that_differ_are_told_and_are_no_outcome(played):
    played.images.encode(5, prepared(1))
    played.say(0, 5)
    played.say(1, 5, rows_digest=bytes(15) + b"x")
    assert played.outcomes == []
    (difference,) = played.differences
    assert "image 5" in difference
    assert "rank 1" in difference


async def test_a_fault_of_one_rank_is_that_of_all_and_the_rows_of_others_go(played):
    played.images.encode(5, prepared(1))
    played.say(0, 5)
    played.say(1, 5, ImageFault.OUT_OF_MEMORY, message="no room")
    (outcome,) = played.outcomes
    assert (outcome.reason, outcome.rank) == (ImageReason.OUT_OF_MEMORY, 1)
    assert outcome.message == "no room"
    first, _ = await played.hear(2)
    assert first[-1].work == DropImage(image_id=5)


async def test_what_was_not_asked_for_is_dropped(played):
    played.say(0, 5)
    played.images.encode(5, prepared(1))
    played.say(0, 5, epoch=2)
    played.say(1, 5)
    assert played.outcomes == []


async def test_with_the_epoch_all_is_forgotten(played):
    played.images.encode(5, prepared(1))
    played.images.lose(LOST)
    played.say(0, 5)
    played.say(1, 5)
    played.images.encode(6, prepared(2))
    assert played.outcomes == []
    assert "LOST" in repr(played.images)
