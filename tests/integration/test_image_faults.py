"""Ranks that fail while they encode or stage: who is hit, and that all others are undisturbed."""

import asyncio

import pytest

from lanehost.chaos.orders import Orders
from lanehost.engine.inbox import Drain
from lanehost.job import Failed
from tests.support.epochs import epochs_of
from tests.support.jobs import ending, read_all, token_ids
from tests.support.picture_jobs import OverEpochs, again, pictures, solo_replies, texts
from tests.support.tiny_gemma3 import write_tiny_gemma3

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(900)]
GROUP = {"dtype": "float32", "device": "cpu", "num_threads": 1, "num_lanes": 8}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_tiny_gemma3(tmp_path_factory.mktemp("gemma3"))


@pytest.fixture
def orders(tmp_path, monkeypatch):
    """What ranks look into that are started now."""
    found = Orders(tmp_path)
    for name, folder in found.environment.items():
        monkeypatch.setenv(name, folder)
    return found


def everybody():
    """A stream of text, and two requests with an image each."""
    return [texts()[0], *pictures()[1:3]]


@pytest.fixture(scope="module")
def solo(checkpoint):
    return asyncio.run(solo_replies(checkpoint, everybody()))


async def run_all(checkpoint, orders, given, *, tp=1):
    """Have the last rank fail once, in company; gives the events, epochs, steps and encodings."""
    async with epochs_of(None, folder=checkpoint, tp=tp, **GROUP) as epochs:
        rig = OverEpochs(epochs, max_stall_ms=1, staged_rows=20)
        run = asyncio.create_task(rig.engine.run())
        text, *others = everybody()
        stream = asyncio.create_task(read_all(rig.send(again(text))))
        await rig.steps.until(lambda: any(plan.decodes for plan in rig.steps.run))
        orders.give(tp - 1, *given)
        arrived = await rig.run_all([again(job) for job in others])
        events = [await stream, *arrived]
        assert not orders.is_open(tp - 1), "nobody came to that point"
        rig.inbox.put(Drain())
        await run
        rig.check_all_free()
        return events, rig


def failed_of(events, solo):
    """Who failed; all others have the replies that they have alone."""
    failed = []
    for at, (one, expected) in enumerate(zip(events, solo, strict=True)):
        if isinstance(ending(one), Failed):
            failed.append(at)
            assert token_ids(one) == expected[: len(token_ids(one))]
        else:
            assert token_ids(one) == expected
    return failed


@pytest.mark.parametrize("fault", ["oom", "raise", "nan", "shape"])
async def test_an_image_that_cannot_be_encoded_ends_its_request_alone(
    checkpoint, orders, solo, fault
):
    events, rig = await run_all(checkpoint, orders, (fault, "encode"))
    assert len(failed_of(events, solo)) == 1
    assert not isinstance(ending(events[0]), Failed)
    assert rig.engine.facts.epoch == 1
    assert rig.engine.images.counters.failed == 1


async def test_a_slice_without_memory_costs_no_reply(checkpoint, orders, solo):
    events, rig = await run_all(checkpoint, orders, ("oom", "staged"))
    assert failed_of(events, solo) == []
    assert rig.engine.facts.epoch == 1
    assert len(rig.steps.refused) >= 1


async def test_rows_of_a_slice_that_are_no_numbers_end_one_request(checkpoint, orders, solo):
    events, rig = await run_all(checkpoint, orders, ("nan", "staged"))
    assert len(failed_of(events, solo)) == 1
    assert rig.engine.facts.epoch == 1


@pytest.mark.parametrize(
    ("given", "tp"),
    [
        (("raise", "staged"), 1),
        (("kill", "staged"), 2),
        (("kill", "encode"), 1),
        (("oom", "staged"), 2),
    ],
)
async def test_a_rank_that_is_lost_while_it_stages_or_encodes_costs_no_reply(
    checkpoint, orders, solo, given, tp
):
    events, rig = await run_all(checkpoint, orders, given, tp=tp)
    assert failed_of(events, solo) == []
    assert rig.engine.facts.epoch == 2
