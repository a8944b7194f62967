from dataclasses import replace

import pytest

from lanehost.errors import RankGroupLost
from lanehost.recorder.check import check_trail
from lanehost.recorder.records import (
    Closed,
    GroupWasLost,
    StepReturned,
    StepSubmitted,
    StepTurnedDown,
)
from lanehost.recorder.replay import CannotReplay, replay_on
from lanehost.recorder.trail import DamagedTrail, Trail
from tests.support.fake_ranks import FakeRanks
from tests.support.trails import FACTS, notes_of, rewrite, run_recorded


async def replayed_on(folder, ranks, told=None):
    trail = Trail(folder)
    on_step = (lambda _: None) if told is None else told.append
    return await replay_on(ranks, trail.header, trail, on_step=on_step)


def steps_of(folder):
    return [note for note in notes_of(folder) if isinstance(note, StepReturned)]


async def test_the_same_plans_give_the_same_results_with_as_many_in_flight(tmp_path):
    told, ranks = [], FakeRanks(FACTS)
    await run_recorded(tmp_path)
    replayed = await replayed_on(tmp_path, ranks, told)
    assert (replayed.difference, type(replayed.end)) == (None, Closed)
    assert told == list(range(1, len(steps_of(tmp_path)) + 1))
    trail = Trail(tmp_path)
    assert check_trail(trail.header, trail, on_step=lambda _: None) == replayed
    assert ranks.plans == [n.plan for n in notes_of(tmp_path) if isinstance(n, StepSubmitted)]


async def test_a_changed_token_is_named_by_step_lane_and_request(tmp_path):
    await run_recorded(tmp_path)
    step = next(one for one in steps_of(tmp_path) if one.step_id > 4 and len(one.drawn) > 1)
    lane_id, token_id = step.drawn[1]

    def change(record):
        if isinstance(record, StepReturned) and record.step_id == step.step_id:
            drawn = (record.drawn[0], (lane_id, token_id + 1), *record.drawn[2:])
            return replace(record, drawn=drawn)
        return record

    rewrite(tmp_path, change)
    replayed = await replayed_on(tmp_path, FakeRanks(FACTS))
    difference = replayed.difference
    assert replayed.num_steps == step.step_id - 1
    assert (difference.step_id, difference.lane_id) == (step.step_id, lane_id)
    assert difference.job_id.startswith("job-")
    assert difference.recorded.split()[-1] == str(token_id + 1)
    assert difference.got.split()[-1] == str(token_id)


async def test_ranks_that_fail_where_they_did_not_differ(tmp_path):
    await run_recorded(tmp_path)
    ranks = FakeRanks(FACTS)
    ranks.nan_seed = 5
    difference = (await replayed_on(tmp_path, ranks)).difference
    assert (difference.job_id, "NAN" in difference.got) == ("job-5", True)


async def test_a_changed_digest_is_a_difference(tmp_path):
    await run_recorded(tmp_path)

    def change(record):
        if isinstance(record, StepReturned) and record.step_id == 3:
            return replace(record, digest=bytes(16))
        return record

    rewrite(tmp_path, change)
    difference = (await replayed_on(tmp_path, FakeRanks(FACTS))).difference
    assert (difference.step_id, difference.recorded) == (3, "00" * 16)


async def test_a_refused_step_is_equal_to_a_refused_step(tmp_path):
    def refuse(rig):
        rig.ranks.refused_at_step = 3

    await run_recorded(tmp_path, change=refuse)
    ranks = FakeRanks(FACTS)
    ranks.refused_at_step = 3
    assert (await replayed_on(tmp_path, ranks)).difference is None
    assert any(isinstance(note, StepTurnedDown) for note in notes_of(tmp_path))
    difference = (await replayed_on(tmp_path, FakeRanks(FACTS))).difference
    assert str(difference) == "step 3: the step: recorded refused (asked to), got run"


async def test_a_step_that_is_refused_now_differs(tmp_path):
    await run_recorded(tmp_path)
    ranks = FakeRanks(FACTS)
    ranks.refused_at_step = 3
    difference = (await replayed_on(tmp_path, ranks)).difference
    assert str(difference) == "step 3: the step: recorded run, got refused (asked to)"


async def test_a_trail_of_a_lost_group_is_equal_up_to_the_loss(tmp_path):
    def lose(rig):
        rig.ranks.lost_at_step = 4

    await run_recorded(tmp_path, change=lose)
    replayed = await replayed_on(tmp_path, FakeRanks(FACTS))
    assert replayed.difference is None
    assert 1 <= replayed.num_steps <= 3
    assert any(isinstance(note, GroupWasLost) for note in notes_of(tmp_path))


async def test_ranks_that_are_lost_in_the_replay_name_the_step(tmp_path):
    await run_recorded(tmp_path)
    ranks = FakeRanks(FACTS)
    ranks.lost_at_step = 4
    with pytest.raises(RankGroupLost, match=r"at step [34] of the replay: rank 0 is gone"):
        await replayed_on(tmp_path, ranks)


async def test_a_trail_without_prompts_is_refused_and_says_what_to_do(tmp_path):
    await run_recorded(tmp_path, keeps_prompts=False)
    with pytest.raises(CannotReplay, match=r"--record-prompts.*--against fake"):
        await replayed_on(tmp_path, FakeRanks(FACTS))


@pytest.mark.parametrize(
    ("name", "here", "said"),
    [
        ("weights_digest", "other", "weights_digest of the trail is fake, of the ranks here other"),
        ("config_digest", "other", "config_digest of the trail is fake"),
        ("num_blocks", 9, "num_blocks of the trail is 14, of the ranks here 9"),
        ("dtype", "float32", "dtype of the trail is fake"),
    ],
)
async def test_other_ranks_than_the_trail_s_are_refused_with_both_values(
    tmp_path, name, here, said
):
    await run_recorded(tmp_path)
    with pytest.raises(CannotReplay, match=said):
        await replayed_on(tmp_path, FakeRanks(replace(FACTS, **{name: here})))


async def test_two_ranks_may_replay_what_one_did(tmp_path):
    await run_recorded(tmp_path)
    two = replace(FACTS, world_size=2, collective="gloo")
    assert (await replayed_on(tmp_path, FakeRanks(two))).difference is None


async def test_damage_in_the_middle_is_told_after_all_before_it_was_equal(tmp_path):
    await run_recorded(tmp_path)
    (path,) = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.write_bytes(content)
    told = []
    with pytest.raises(DamagedTrail, match="has changed"):
        await replayed_on(tmp_path, FakeRanks(FACTS), told)
    assert len(told) > 10
