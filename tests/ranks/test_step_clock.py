"""Every moment of a step belongs to one part of it."""

from hypothesis import given
from hypothesis import strategies as st

from ranks.step_clock import StepClock


class Clock:
    """A clock that goes on by one with each look, and tells how often it was looked at."""

    def __init__(self):
        self.now_ns = 0

    def __call__(self):
        self.now_ns += 1
        return self.now_ns


@given(st.lists(st.sampled_from(["inputs", "forward", "exchange", "sampling"]), max_size=20))
def test_the_parts_add_up_to_the_step(entered):
    clock = StepClock(Clock())
    clock.begin(counts_parts=True)
    for part in entered:
        clock.enter(part)
    whole_ns, parts = clock.end()
    assert sum(parts.values()) == whole_ns == len(entered) + 1


def test_a_step_of_which_nobody_asks_is_timed_at_its_ends_alone():
    ticks = Clock()
    clock = StepClock(ticks)
    clock.begin(counts_parts=False)
    for part in ("inputs", "forward", "other"):
        clock.enter(part)
    assert clock.end() == (1, {})
    assert ticks.now_ns == 2


def test_what_interrupts_a_part_is_not_of_it():
    clock = StepClock(Clock())
    clock.begin(counts_parts=True)
    clock.enter("forward")
    before = clock.enter("exchange")
    clock.enter(before)
    _, parts = clock.end()
    assert parts == {"other": 1, "forward": 2, "exchange": 1}


def test_what_the_model_counted_stands_for_its_forward_and_the_rest_is_inputs():
    clock = StepClock(iter([0, 10, 110, 150, 160]).__next__)
    clock.begin(counts_parts=True)
    clock.enter("forward")
    clock.enter("sampling")
    clock.split_forward(lambda: {"norm": 30, "head": 50})
    clock.enter("other")
    assert clock.end() == (160, {"other": 20, "norm": 30, "head": 50, "inputs": 20, "sampling": 40})


def test_a_model_that_counts_nothing_has_a_forward():
    clock = StepClock(Clock())
    clock.begin(counts_parts=True)
    clock.enter("forward")
    clock.enter("other")
    clock.split_forward(dict)
    assert clock.end()[1] == {"other": 2, "forward": 1}


def test_a_step_knows_nothing_of_the_one_before():
    clock = StepClock(Clock())
    for counts_parts in (True, False, True):
        clock.begin(counts_parts=counts_parts)
        clock.enter("forward")
        whole_ns, parts = clock.end()
        assert sum(parts.values()) == (whole_ns if counts_parts else 0)
