from dataclasses import replace

import pytest

from lanehost.engine.backend import Epochs
from lanehost.errors import RankGroupLost
from lanehost.recorder.check import check_trail
from lanehost.recorder.records import (
    Closed,
    GroupWasLost,
    StepReturned,
    StepSubmitted,
    StepTurnedDown,
)
from lanehost.recorder.replay import StepsInFlight, replay_on
from lanehost.recorder.trail import CannotReplay, DamagedTrail, Torn, Trail, read_file
from ranks.plan import LaneDraft, StepPlan
from tests.support.fake_epochs import FakeEpochs
from tests.support.fake_ranks import FakeRanks
from tests.support.trails import (
    FACTS,
    fail_steps,
    first_file,
    notes_of,
    rewrite,
    run_recorded,
    write_file,
)


async def replayed_on(folder, ranks, told=None):
    trail = Trail(folder)
    on_step = (lambda _: None) if told is None else told.append
    epochs = Epochs(first=ranks, later=FakeEpochs(ranks, num_epochs=99))
    return await replay_on(epochs, trail.header, trail, on_step=on_step)


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


async def test_what_failed_and_what_was_skipped_behind_it_is_not_run_again(tmp_path):
    await run_recorded(tmp_path, change=fail_steps())
    notes = notes_of(tmp_path)
    not_run = {note.step_id for note in notes if isinstance(note, StepTurnedDown)}
    assert len(not_run) > 5
    ranks = FakeRanks(FACTS)
    replayed = await replayed_on(tmp_path, ranks)
    plans = [note.plan for note in notes if isinstance(note, StepSubmitted)]
    assert ranks.plans == [plan for plan in plans if plan.step_id not in not_run]
    assert (replayed.difference, replayed.num_left_out) == (None, len(not_run))
    trail = Trail(tmp_path)
    assert check_trail(trail.header, trail, on_step=lambda _: None) == replayed


async def test_as_many_plans_are_in_flight_as_of_those_that_ran(tmp_path):
    class Counting(FakeRanks):
        num_out = most_out = 0

        def submit(self, plan):
            super().submit(plan)
            self.num_out += 1
            self.most_out = max(self.most_out, self.num_out)

        async def next_outcome(self):
            outcome = await super().next_outcome()
            self.num_out -= 1
            return outcome

    await run_recorded(tmp_path, change=fail_steps())
    ranks = Counting(FACTS)
    assert (await replayed_on(tmp_path, ranks)).difference is None
    assert (ranks.most_out, ranks.num_out) == (2, 0)


def test_a_step_knows_whose_drafts_were_in_flight_when_it_was_written():
    in_flight = StepsInFlight()
    drafts = (LaneDraft(lane_id=4, token_ids=(1,)),)
    in_flight.add(StepPlan(step_id=1, epoch=1, decodes=(4, 5), drafts=drafts), {})
    in_flight.add(StepPlan(step_id=2, epoch=1, decodes=(5,)), {})
    took = [in_flight.take(StepTurnedDown(at_ns=1, step_id=n, epoch=1, reason="")) for n in (1, 2)]
    in_flight.add(StepPlan(step_id=3, epoch=1, decodes=(4,)), {})
    took.append(in_flight.take(StepTurnedDown(at_ns=1, step_id=3, epoch=1, reason="")))
    assert [step.guessing for step in took] == [frozenset(), frozenset({4}), frozenset()]


async def test_a_step_that_fails_now_and_ran_then_differs(tmp_path):
    await run_recorded(tmp_path)
    ranks = FakeRanks(FACTS)
    ranks.fails = lambda plan: plan.step_id == 4
    difference = (await replayed_on(tmp_path, ranks)).difference
    assert str(difference) == "step 4: the step: recorded run, got failed (asked to)"


async def test_a_step_that_fails_now_and_did_not_fit_then_differs(tmp_path):
    def refuse(rig):
        rig.ranks.refused_at_step = 3

    await run_recorded(tmp_path, change=refuse)
    ranks = FakeRanks(FACTS)
    ranks.fails = lambda plan: plan.step_id == 3
    difference = (await replayed_on(tmp_path, ranks)).difference
    assert str(difference) == "step 3: the step: recorded refused (asked to), got failed (asked to)"


async def test_a_plan_of_which_the_trail_does_not_tell_the_outcome_is_not_run(tmp_path):
    await run_recorded(tmp_path, change=fail_steps())
    first = next(note for note in notes_of(tmp_path) if isinstance(note, StepTurnedDown))
    records = [*read_file(first_file(tmp_path), Torn())]
    cut = records[: records.index(first) + 1]
    assert isinstance(records[len(cut)], StepTurnedDown) or len(cut) > 3
    write_file(first_file(tmp_path), cut)
    ranks = FakeRanks(FACTS)
    replayed = await replayed_on(tmp_path, ranks)
    assert (replayed.difference, replayed.end, replayed.num_left_out) == (None, None, 1)
    assert all(plan.step_id < first.step_id for plan in ranks.plans)


async def test_an_outcome_that_is_missing_is_looked_for_no_further_than_the_next(tmp_path):
    await run_recorded(tmp_path)
    trail = Trail(tmp_path)
    first, *others = [note for note in trail if isinstance(note, StepSubmitted | StepReturned)]
    notes = [first, *(n for n in others if isinstance(n, StepReturned) and n.step_id > 1)]
    unread = iter(notes)
    epochs = Epochs(first=FakeRanks(FACTS), later=FakeEpochs(FakeRanks(FACTS)))
    with pytest.raises(DamagedTrail, match="step 2 came back, and was not the next in flight"):
        await replay_on(epochs, trail.header, unread, on_step=lambda _: None)
    assert len(list(unread)) > len(notes) // 2


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
