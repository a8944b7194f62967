"""Who has fallen silent, stands still or was stopped, and who has not."""

import pytest

from lanehost.rank_group.events import LossCause
from lanehost.rank_group.liveness import SLICE_S, Finding, Liveness, LivenessLimits, ProcessSight

LIMITS = LivenessLimits(heartbeat_s=2.0, stall_s=3.0, start_s=10.0, stopped_s=1.0)


class Watch:
    """One rank, slice after slice."""

    def __init__(self, *, is_in_group=True):
        self.liveness = Liveness(LIMITS)
        self.liveness.begin(0)
        if is_in_group:
            self.liveness.put_in_group(0)
        self.sight = ProcessSight(is_stopped=False, cpu_ticks=0)
        self.owed = None
        self.found = []

    def slices(self, num, *, elapsed_s=SLICE_S, each=lambda _: None):
        for index in range(num):
            each(index)
            self.found += self.liveness.look(
                elapsed_s, see=lambda _: self.sight, owed_step=lambda _: self.owed
            )
        return self.found

    def beat(self, step_id=0, num_stages=0):
        self.liveness.hear_beat(0, step_id=step_id, num_stages=num_stages)

    def burn(self, index):
        self.sight = ProcessSight(is_stopped=False, cpu_ticks=index)


def test_a_rank_of_the_group_that_says_nothing_is_found_once_at_the_limit():
    watch = Watch()
    assert watch.slices(19) == []
    assert watch.slices(1) == [Finding(0, LossCause.SILENT, "rank 0 has said nothing for 2 s")]
    assert len(watch.slices(100)) == 1


def test_any_word_is_a_sign_of_life():
    watch = Watch()
    for speak in (watch.beat, lambda: watch.liveness.hear(0)):
        watch.slices(19)
        speak()
    assert watch.slices(19) == []


def test_a_pause_of_the_master_is_nobody_s_silence():
    assert Watch().slices(19, elapsed_s=1000) == []


def test_a_slice_that_came_early_counts_as_what_it_was():
    assert Watch().slices(30, elapsed_s=SLICE_S / 2) == []


def test_before_it_is_in_the_group_there_is_more_time():
    watch = Watch(is_in_group=False)
    assert watch.slices(99) == []
    assert watch.slices(2)[0].cause is LossCause.SILENT


def test_before_it_is_in_the_group_the_use_of_the_processor_is_life_and_behind_it_not():
    watch = Watch(is_in_group=False)
    assert watch.slices(300, each=watch.burn) == []
    watch.liveness.put_in_group(0)
    assert watch.slices(20, each=watch.burn)[0].cause is LossCause.SILENT


def test_one_that_leaves_the_group_is_given_time_again():
    watch = Watch()
    watch.slices(19)
    watch.liveness.take_out_of_group(0)
    assert watch.slices(50) == []


def test_a_stopped_process_is_found_soon_in_any_phase():
    for is_in_group in (False, True):
        watch = Watch(is_in_group=is_in_group)
        watch.sight = ProcessSight(is_stopped=True, cpu_ticks=0)
        assert watch.slices(9) == []
        assert [found.cause for found in watch.slices(1)] == [LossCause.STOPPED]


def test_one_that_was_stopped_for_a_moment_only_is_not_found():
    watch = Watch()
    for is_stopped in (True, False, True):
        watch.sight = ProcessSight(is_stopped=is_stopped, cpu_ticks=0)
        watch.beat()
        watch.slices(6)
    assert watch.found == []


def test_a_step_that_stands_still_is_found_though_the_heart_beats():
    watch = Watch()
    watch.owed = 7
    found = watch.slices(31, each=lambda _: watch.beat(7, 5))
    assert found == [Finding(0, LossCause.STALLED, "rank 0 has not moved in step 7 for 3 s")]


def test_one_that_stands_still_is_found_again_until_something_is_done():
    watch = Watch()
    watch.owed = 7
    assert len(watch.slices(62, each=lambda _: watch.beat(7, 5))) == 2


def test_a_long_step_that_moves_is_not_found():
    watch = Watch()
    watch.owed = 7
    assert watch.slices(300, each=lambda index: watch.beat(7, index // 29)) == []


def test_short_steps_one_after_the_other_are_not_found():
    watch = Watch()

    def step(index):
        watch.owed = 1 + index // 29
        watch.beat()

    assert watch.slices(300, each=step) == []


def test_who_owes_nothing_may_stand_still():
    assert Watch().slices(300, each=lambda _: None) != []
    watch = Watch()
    assert watch.slices(300, each=lambda _: watch.beat()) == []


@pytest.mark.parametrize("speak", ["hear", "take_out_of_group", "forget"])
def test_one_that_is_not_watched_may_still_speak(speak):
    liveness = Liveness(LIMITS)
    getattr(liveness, speak)(3)
    liveness.hear_beat(3, step_id=1, num_stages=1)
    assert liveness.look(1, see=lambda _: None, owed_step=lambda _: None) == []
