from dataclasses import replace

import pytest

from lanehost.engine.carry import take_off
from lanehost.errors import RankGroupLost
from lanehost.lanes.lane import LaneEvent
from lanehost.lanes.table import LaneTable
from tests.support.fake_engine import EngineRig
from tests.support.fake_target import solo_continuation
from tests.support.jobs import ending, make_job, make_sequence, read_all, token_ids


def solo(job):
    return solo_continuation(job.prompt_ids, job.draw, job.max_tokens)


def lanes_of(*planned):
    """A lane for each: so many positions of it are planned, none of them computed."""
    lanes = LaneTable(len(planned), block_size=4)
    for number, num_planned in enumerate(planned):
        lane = lanes.seat(make_sequence((1, 2, 3), job_id=f"j{number}"), (number,))
        lane.num_planned_tokens = num_planned
    return lanes


def test_a_loss_counts_against_new_rows_in_flight_alone():
    lanes = lanes_of(3, 0, 3, 2)
    # The third has been further before, the fourth has not, and has come back.
    lanes[2].sequence.note_computed(3)
    lanes[3].num_computed_tokens = 2
    take_off(lanes)
    assert [lane.sequence.num_losses for lane in lanes] == [1, 0, 0, 0]


def test_who_ended_is_neither_carried_nor_poisoned():
    lanes = lanes_of(3, 3, 3)
    lanes[1].fire(LaneEvent.FINISHED)
    lanes[2].sequence.num_losses = 2
    off = take_off(lanes)
    assert [lane.job.job_id for lane in off.carried] == ["j0"]
    assert [lane.job.job_id for lane in off.poisoned] == ["j2"]


@pytest.mark.parametrize("name", ["num_blocks", "block_size", "num_lanes", "weights_digest"])
async def test_ranks_that_hold_something_else_are_refused_with_both_values(name):
    rig = EngineRig(num_epochs=2)
    rig.ranks.lost_at_step = 3
    was = getattr(rig.ranks.facts, name)
    other = f"{was}x" if isinstance(was, str) else was * 2

    def change(ranks):
        ranks._facts = replace(ranks._facts, **{name: other})
        return ranks

    rig.epochs.change = change
    stream = rig.send(make_job(max_tokens=9))
    with pytest.raises(RankGroupLost, match=f"{name} is {other} in epoch 2, and was {was}"):
        await rig.engine.run()
    assert isinstance(ending([e async for e in stream]).error, RankGroupLost)


async def test_another_way_to_add_is_not_refused():
    rig = EngineRig(num_epochs=2)
    rig.ranks.lost_at_step = 3

    def change(ranks):
        ranks._facts = replace(ranks._facts, collective="gloo")
        return ranks

    rig.epochs.change = change
    job = make_job(max_tokens=9)
    async with rig.running():
        assert token_ids(await read_all(rig.send(job))) == solo(job)
    assert (rig.engine.facts.epoch, rig.engine.facts.collective) == (2, "gloo")
