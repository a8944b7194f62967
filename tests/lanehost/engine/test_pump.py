import asyncio

from lanehost.engine.backend import Epochs
from lanehost.engine.inbox import GroupFormed, GroupLost, Inbox, PumpFailed, RanksGivenUp, StepDone
from lanehost.engine.pump import pump_epochs
from ranks.plan import StepPlan, rows_digest
from tests.support.fake_engine import settle_loop
from tests.support.fake_epochs import FakeEpochs
from tests.support.fake_ranks import FakeRanks, fake_facts


def empty_plan(epoch):
    return StepPlan(step_id=1, epoch=epoch, digest=rows_digest(1, epoch, []))


async def test_what_is_told_of_an_epoch_comes_before_a_word_of_the_next():
    first, inbox = FakeRanks(fake_facts()), Inbox()
    epochs = FakeEpochs(first, num_epochs=2)
    pump = asyncio.create_task(pump_epochs(Epochs(first=first, later=epochs), inbox))
    for epoch in (1, 2):
        epochs.last.submit(empty_plan(epoch))
        await settle_loop()
        epochs.last.lose()
        await settle_loop()
    await pump
    kinds = [StepDone, GroupLost, GroupFormed, StepDone, GroupLost, RanksGivenUp]
    assert [type(command) for command in await inbox.take_all()] == kinds


async def test_a_bug_ends_it_and_is_handed_on():
    first, inbox = FakeRanks(fake_facts()), Inbox()
    epochs = FakeEpochs(first, num_epochs=2)
    epochs.change = lambda _: 1 / 0
    pump = asyncio.create_task(pump_epochs(Epochs(first=first, later=epochs), inbox))
    first.lose()
    await pump
    assert [type(one) for one in await inbox.take_all()] == [GroupLost, PumpFailed]
