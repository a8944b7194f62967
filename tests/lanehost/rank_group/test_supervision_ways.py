"""The ways of supervision, one by one."""

import pytest

from lanehost.rank_group.events import (
    EndEpoch,
    EpochLost,
    FailStart,
    GiveUp,
    Kill,
    KillFailed,
    LossCause,
    NoteLost,
    RankLost,
    SaidHello,
    SaidLeft,
    SaidReady,
    SetTimer,
    StepFinished,
    TellLeave,
    Timer,
)
from tests.support.supervised import MAX_RESTARTS, World, serving


def test_the_lost_rank_alone_is_spawned_again_and_the_other_leaves_and_stays():
    world = serving()
    decided = world.exit(1)
    assert EndEpoch(1, LossCause.EXITED, "rank 1 ended", 1) in decided
    assert TellLeave(0, 1) in decided
    assert world.num_spawned == {0: 1, 1: 2}
    world.load(1)
    assert world.formed == [1]
    world.left(0)
    assert world.formed == [1, 2]
    world.ready(0, 1)
    assert (world.served, world.num_spawned) == ([1, 2], {0: 1, 1: 2})


def test_a_rank_that_answers_no_leave_in_time_is_replaced_too_and_that_is_no_second_loss():
    world = serving()
    world.exit(1)
    decided = world.run_out(Timer.LEAVE)
    reason = "rank 0 said no Left within 2.0 s"
    assert decided == (NoteLost(0, LossCause.STUCK, reason), Kill(0))
    world.exit(0)
    assert (world.num_spawned, world.machine.num_in_row) == ({0: 2, 1: 2}, 1)
    world.load(0, 1)
    world.ready(0, 1)
    assert world.served == [1, 2]


def test_two_ranks_lost_at_once_are_one_loss():
    world = serving()
    world.exit(1)
    world.exit(0)
    assert (world.num_spawned, world.machine.num_in_row) == ({0: 2, 1: 2}, 1)


def test_an_epoch_whose_culprit_is_not_known_replaces_nobody():
    world = serving()
    world.tell(EpochLost(1, LossCause.BROKEN, "time-out", 0))
    world.left(0, 1)
    world.ready(0, 1)
    assert (world.served, world.num_spawned) == ([1, 2], {0: 1, 1: 1})


@pytest.mark.parametrize(
    "event",
    [
        EpochLost(1, LossCause.BROKEN, "late word of the epoch before"),
        SaidReady(0, 1),
    ],
)
def test_late_words_of_an_epoch_that_is_over_change_nothing(event):
    world = serving()
    world.exit(1)
    assert world.tell(event) == ()


def test_a_loss_during_the_recovery_is_one_more_in_the_row_and_backs_off():
    world = serving()
    world.exit(1)
    world.left(0)
    decided = world.exit(1)
    assert SetTimer(Timer.BACK_OFF, 0.5) in decided
    assert world.num_spawned == {0: 1, 1: 2}
    world.run_out(Timer.BACK_OFF)
    assert world.num_spawned == {0: 1, 1: 3}


def test_a_loss_while_forming_is_told_to_those_that_form():
    world = serving()
    world.exit(1)
    world.left(0)
    world.load(1)
    assert world.formed == [1, 2]
    decided = world.exit(0)
    assert TellLeave(1, 2) in decided
    assert not any(isinstance(one, EndEpoch) for one in decided)
    world.left(1)
    world.run_out(Timer.BACK_OFF)
    world.load(0)
    world.ready(0, 1)
    assert world.served == [1, 3]


def lose_in_a_row(world, times, *, between=lambda: None):
    for _ in range(times):
        world.exit(0)
        if world.end:
            return
        if Timer.BACK_OFF in world.timers:
            world.run_out(Timer.BACK_OFF)
        world.load(0)
        world.ready(0)
        between()


def test_at_one_too_many_in_a_row_it_is_given_up():
    world = serving(1)
    lose_in_a_row(world, MAX_RESTARTS)
    assert world.end is None
    lose_in_a_row(world, 1)
    assert world.end == GiveUp("rank 0 ended; the limit is 3 restarts without a step between", 0)
    assert world.ended == world.served
    assert world.tell(SaidHello(0)) == ()


def test_no_restart_at_all_is_a_limit_too():
    world = serving(1, max_restarts=0)
    world.exit(0)
    assert isinstance(world.end, GiveUp)


def test_a_finished_step_begins_a_new_row():
    world = serving(1)
    lose_in_a_row(world, 3 * MAX_RESTARTS, between=lambda: world.tell(StepFinished()))
    assert world.end is None


def test_a_while_of_serving_begins_a_new_row():
    world = serving(1)
    lose_in_a_row(world, 3 * MAX_RESTARTS, between=lambda: world.run_out(Timer.NEW_ROW))
    assert world.end is None


def test_a_rank_that_is_late_in_the_recovery_is_lost():
    world = serving()
    world.exit(1)
    world.left(0)
    decided = world.run_out(Timer.RECOVER)
    assert NoteLost(1, LossCause.LATE, "rank 1 is not ready within --load-timeout") in decided
    assert Kill(1) in decided
    assert world.machine.num_in_row == 2


def test_a_process_that_cannot_be_killed_gives_it_up():
    world = serving()
    world.tell(RankLost(1, LossCause.SILENT, "why"))
    world.tell(KillFailed(1))
    assert world.end == GiveUp("rank 1 cannot be killed", 1)


@pytest.mark.parametrize("phase", ["spawned", "hello", "loaded", "forming"])
def test_what_is_lost_before_the_first_epoch_fails_the_start(phase):
    world = World(2)
    if phase == "hello":
        world.tell(SaidHello(0))
    if phase == "loaded":
        world.load(0)
    if phase == "forming":
        world.load(0, 1)
        world.ready(1)
    world.exit(0)
    assert world.end == FailStart("rank 0 ended")


def test_a_word_that_is_not_due_loses_who_said_it():
    world = serving()
    decided = world.tell(SaidLeft(0, 1))
    reason = "out of step: rank 0 said Left of epoch 1, due is 1, while it was ready"
    assert decided[0] == NoteLost(0, LossCause.OUT_OF_STEP, reason)
    assert Kill(0) in decided
