from hypothesis import given
from hypothesis import strategies as st

from lanehost.lanes.pass_limit import PassLimit

MOST = 16


def test_a_pass_that_was_too_much_halves_the_next():
    limit = PassLimit(MOST)
    limit.note_failed(4)
    assert limit.num_prompts == 2
    limit.note_failed(2)
    assert limit.num_prompts == 1


def test_one_prompt_that_failed_says_nothing_of_passes():
    limit = PassLimit(MOST)
    limit.note_failed(1)
    limit.note_failed(0)
    assert limit.num_prompts == MOST


def test_the_limit_rises_by_one_after_many_passes_at_it():
    limit = PassLimit(MOST)
    limit.note_failed(4)
    for _ in range(31):
        limit.note_run(2)
        limit.note_run(1)
    assert limit.num_prompts == 2
    limit.note_run(2)
    assert limit.num_prompts == 3


def test_a_pass_that_was_too_much_makes_those_before_it_count_no_more():
    limit = PassLimit(MOST)
    limit.note_failed(8)
    for _ in range(31):
        limit.note_run(4)
    limit.note_failed(4)
    for _ in range(31):
        limit.note_run(2)
    assert limit.num_prompts == 2
    limit.note_run(2)
    assert limit.num_prompts == 3


def test_a_pass_that_failed_because_of_one_prompt_says_nothing_of_room():
    limit = PassLimit(MOST)
    limit.note_failed(4)
    limit.note_failed_alone()
    assert limit.num_prompts == MOST
    limit.note_failed(4)
    limit.note_failed(2)
    limit.note_failed_alone()
    assert limit.num_prompts == 2


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 16))))
def test_the_limit_keeps_its_bounds_and_never_rises_at_once(steps):
    limit = PassLimit(MOST)
    for has_failed, num_prompts in steps:
        before = limit.num_prompts
        if has_failed:
            limit.note_failed(num_prompts)
        else:
            limit.note_run(min(num_prompts, before))
        assert 1 <= limit.num_prompts <= min(MOST, before + 1)
