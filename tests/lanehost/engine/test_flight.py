import pytest

from lanehost.engine.flight import Flight
from lanehost.errors import RankGroupLost
from ranks.plan import RefusalKind, StepPlan, StepRefused, StepResult
from tests.support.fake_engine import EngineRig
from tests.support.fake_ranks import FakeRanks
from tests.support.jobs import ending, make_job


def depart(flight):
    plan = StepPlan(step_id=flight.next_step_id, epoch=1, follows=flight.follows)
    flight.depart(plan)
    return plan


def outcome_of(plan):
    return StepRefused(step_id=plan.step_id, epoch=1, kind=RefusalKind.FAILED, reason="")


def test_each_plan_follows_the_one_before_it():
    flight = Flight()
    plans = [depart(flight), depart(flight)]
    assert [(plan.step_id, plan.follows) for plan in plans] == [(1, 0), (2, 1)]


def test_no_more_than_two_are_out():
    flight = Flight()
    depart(flight)
    depart(flight)
    assert not flight.takes_more
    with pytest.raises(AssertionError, match="step 3 on top of"):
        depart(flight)


def test_outcomes_come_in_the_order_of_the_plans():
    flight = Flight()
    first, second = depart(flight), depart(flight)
    with pytest.raises(AssertionError, match="step 2 after 1"):
        flight.land(outcome_of(second))
    assert first.step_id == 1


def test_what_is_behind_a_failed_step_comes_back_before_anything_leaves():
    flight = Flight()
    first, second = depart(flight), depart(flight)
    assert not flight.land(outcome_of(first)).was_turned_back
    assert flight.turn_back(first) == (second,)
    assert not flight.takes_more
    assert flight.land(outcome_of(second)).was_turned_back
    assert flight.takes_more
    third = depart(flight)
    assert (third.step_id, third.follows) == (3, 0)
    assert not flight.land(outcome_of(third)).was_turned_back


def test_the_next_plan_follows_what_ran_before_the_failed_one():
    flight = Flight()
    first = depart(flight)
    flight.land(outcome_of(first))
    second = depart(flight)
    flight.land(outcome_of(second))
    flight.turn_back(second)
    assert depart(flight).follows == first.step_id


def test_a_plan_that_follows_nothing_that_was_there_is_a_bug():
    flight = Flight()
    with pytest.raises(AssertionError):
        flight.depart(StepPlan(step_id=1, epoch=1, follows=7))


def test_repr_shows_what_is_out():
    flight = Flight()
    depart(flight)
    assert repr(flight) == "<Flight [1] follows 1 turned back 0>"


class OutOfStep(FakeRanks):
    """Its first step fails, and of one step it says something else than what became of it."""

    def __init__(self, ranks, step_id, said):
        super().__init__(ranks.facts)
        self.ranks = ranks
        self.fails = lambda plan: plan.step_id == 1
        self.step_id, self.said = step_id, said

    async def next_outcome(self):
        outcome = await super().next_outcome()
        return self.said if outcome.step_id == self.step_id else outcome

    def lose(self, error=None):
        super().lose(error)
        self.ranks.lose(error)  # whose epochs go on when they are lost


def refusal(step_id, kind):
    return StepRefused(step_id=step_id, epoch=1, kind=kind, reason="on purpose")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (StepResult(step_id=2, epoch=1, drawn={0: 7}, failures={}, digest=b""), "was run behind"),
        (refusal(2, RefusalKind.FAILED), r"refused \(failed\)"),
        (refusal(2, RefusalKind.MISMATCH), r"refused \(mismatch\)"),
        (refusal(1, RefusalKind.SKIPPED), r"refused \(skipped\)"),
    ],
)
async def test_a_step_behind_one_that_failed_can_only_be_skipped_and_no_other_can(said, words):
    rig = EngineRig(wrap=lambda ranks: OutOfStep(ranks, said.step_id, said))
    streams = [rig.send(make_job()) for _ in range(2)]
    with pytest.raises(RankGroupLost, match="given up"):
        await rig.engine.run()
    with pytest.raises(RankGroupLost, match=words):
        await rig.ranks.next_outcome()
    for stream in streams:
        assert isinstance(ending([event async for event in stream]).error, RankGroupLost)
