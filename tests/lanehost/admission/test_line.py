from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.admission.line import MAX_OVERTAKES, Line
from lanehost.errors import Overloaded
from lanehost.job import Priority
from lanehost.lanes.sequence import Sequence
from lanehost.settings import LineSettings
from tests.support.jobs import make_job, make_sequence

BACKGROUND = Priority.BACKGROUND
EQUAL = {"flood": 1, "quiet": 1}


def make_line(weights=None, *, max_waiting=4, max_waiting_tokens=100):
    settings = LineSettings(max_waiting=max_waiting, max_waiting_tokens=max_waiting_tokens)
    return Line(settings, weights)


def join(line, sequence):
    line.promise(sequence.job.scope)
    line.join(sequence)
    return sequence


def arrive(line, arrived_s, scope=""):
    join(line, Sequence(replace(make_job(scope=scope), arrived_s=arrived_s)))


def flood(line, *, num_tokens=3):
    """Send as much as the line takes, half of it still being prepared."""
    for number in range(1000):
        try:
            line.promise("flood")
            if number % 2:
                line.join(make_sequence((1,) * num_tokens, scope="flood"))
        except Overloaded:
            return
    pytest.fail("the line took everything")


def test_a_full_line_refuses_at_once_with_the_numbers():
    line = make_line(max_waiting=2)
    join(line, make_sequence())
    line.promise()
    with pytest.raises(Overloaded, match=r"3 requests would wait, limit 2 \(--max-wai") as caught:
        line.promise()
    assert caught.value.retry_after_s > 0


def test_a_promise_given_up_makes_room():
    line = make_line(max_waiting=1)
    line.promise()
    line.withdraw()
    line.promise()
    with pytest.raises(Overloaded):
        line.promise()


def test_too_many_waiting_tokens_are_refused_and_leave_no_trace():
    line = make_line(max_waiting_tokens=10)
    join(line, make_sequence((1,) * 8))
    line.promise()
    with pytest.raises(Overloaded, match=r"11 prompt tokens would wait, limit 10 \(--max-wai"):
        line.join(make_sequence((1,) * 3))
    assert (len(line), line.num_tokens) == (1, 8)
    assert repr(line) == "<Line 1 jobs, 0 promised>"


def test_a_job_alone_may_pass_the_token_bound():
    line = make_line(max_waiting_tokens=10)
    join(line, make_sequence((1,) * 50))
    assert len(line) == 1


def test_a_job_alone_in_its_scope_may_pass_the_token_bound_whatever_others_hold():
    line = make_line(EQUAL, max_waiting=100, max_waiting_tokens=40)
    flood(line, num_tokens=7)
    join(line, make_sequence((1,) * 50, scope="quiet"))
    line.promise("quiet")
    with pytest.raises(Overloaded, match="tokens would wait"):
        line.join(make_sequence(scope="quiet"))


def test_who_has_no_share_passes_the_token_bound_only_when_nobody_else_waits():
    line = make_line(EQUAL, max_waiting=100, max_waiting_tokens=40)
    waiting = join(line, make_sequence(scope="quiet"))
    line.promise("stranger")
    with pytest.raises(Overloaded):
        line.join(make_sequence((1,) * 50, scope="stranger"))
    line.leave(waiting.job.job_id)
    join(line, make_sequence((1,) * 50, scope="stranger"))


def test_a_place_that_was_not_promised_cannot_be_given_up():
    line = make_line(EQUAL)
    join(line, make_sequence(scope="quiet"))
    line.promise("flood")
    with pytest.raises(AssertionError, match="quiet"):
        line.withdraw("quiet")


def test_a_refusal_for_a_share_gives_the_scopes_own_numbers():
    line = make_line(EQUAL, max_waiting=8)
    for _ in range(6):
        line.promise("flood")
    with pytest.raises(Overloaded) as caught:
        line.promise("flood")
    assert str(caught.value) == (
        "7 requests would wait for you alone, limit 6 for now: "
        "the rest of 8 is kept for others (--max-waiting)"
    )


@given(
    weights=st.fixed_dictionaries({"flood": st.integers(1, 9), "quiet": st.integers(1, 9)}),
    num_tokens=st.integers(1, 20),
    data=st.data(),
)
def test_a_scope_that_floods_the_line_gets_no_other_refused(weights, num_tokens, data):
    """The quiet one sends up to its share of the places, and of the tokens."""
    line = make_line(weights, max_waiting=20, max_waiting_tokens=120)
    flood(line, num_tokens=num_tokens)
    all_weights = sum(weights.values())
    places, tokens = 10 * weights["quiet"] // all_weights, 60 * weights["quiet"] // all_weights
    while places > 0 and tokens > 0:
        wanted = data.draw(st.integers(1, tokens))
        join(line, make_sequence((1,) * wanted, scope="quiet"))
        places, tokens = places - 1, tokens - wanted


def test_a_scope_that_sends_one_at_a_time_is_among_the_next_two_behind_a_flood():
    line = make_line(EQUAL, max_waiting=512, max_waiting_tokens=10_000)
    for _ in range(200):
        join(line, make_sequence(scope="flood"))
    for _ in range(5):
        mine = join(line, make_sequence(scope="quiet"))
        assert mine in (line.take_head(), line.take_head())


def test_nobody_in_the_background_goes_before_the_foreground():
    line = make_line()
    later = join(line, make_sequence(priority=BACKGROUND))
    first = join(line, make_sequence())
    assert [line.take_head(), line.take_head()] == [first, later]
    assert not later.is_promoted


def test_after_64_overtakes_in_a_row_the_background_is_next_and_is_promoted():
    line = make_line(max_waiting=500, max_waiting_tokens=10_000)
    patient, other = (join(line, make_sequence(priority=BACKGROUND)) for _ in range(2))
    foreground = [join(line, make_sequence()) for _ in range(2 * MAX_OVERTAKES)]
    assert [line.take_head() for _ in range(MAX_OVERTAKES)] == foreground[:MAX_OVERTAKES]
    assert (line.head(), patient.is_promoted) == (patient, False)
    assert line.take_head().is_promoted
    assert [line.take_head() for _ in range(MAX_OVERTAKES)] == foreground[MAX_OVERTAKES:]
    assert (line.head(), other.is_promoted) == (other, False)


def test_overtakes_are_counted_while_somebody_waits_in_the_background_only():
    line = make_line(max_waiting=500, max_waiting_tokens=10_000)
    gone = join(line, make_sequence(priority=BACKGROUND))
    foreground = [join(line, make_sequence()) for _ in range(MAX_OVERTAKES + 2)]
    line.take_head()
    line.leave(gone.job.job_id)
    line.take_head()
    patient = join(line, make_sequence(priority=BACKGROUND))
    assert [line.take_head() for _ in range(MAX_OVERTAKES)] == foreground[2:]
    assert line.take_head() is patient
    assert patient.is_promoted


def test_one_that_was_promoted_comes_back_to_the_foreground():
    line = make_line()
    promoted = make_sequence(priority=BACKGROUND)
    promoted.is_promoted = True
    join(line, make_sequence())
    line.rejoin(promoted)
    assert line.take_head() is promoted
    assert promoted.is_promoted


def test_one_that_gave_way_to_the_foreground_stays_behind_it():
    line = make_line()
    gave_way = join(line, make_sequence(priority=BACKGROUND))
    behind = join(line, make_sequence(priority=BACKGROUND))
    line.take_head()
    urgent = join(line, make_sequence())
    line.rejoin(gave_way)
    assert [line.take_head() for _ in range(3)] == [urgent, gave_way, behind]


def test_no_bound_is_asked_of_one_that_comes_back_and_it_counts():
    line = make_line(max_waiting=1, max_waiting_tokens=4)
    join(line, make_sequence())
    parked = make_sequence()
    parked.generated_ids += [7, 8]
    line.rejoin(parked)
    assert (len(line), line.num_tokens) == (2, 8)
    assert line.take_head() is parked
    assert (len(line), line.num_tokens) == (1, 3)


def test_who_waits_leaves_from_anywhere_and_once():
    line = make_line()
    _, middle, _ = (join(line, make_sequence()) for _ in range(3))
    assert line.leave(middle.job.job_id) is middle
    assert line.leave(middle.job.job_id) is None
    assert (len(line), line.num_tokens) == (2, 6)


def test_nobody_is_taken_when_nobody_waits():
    with pytest.raises(AssertionError, match="nobody waits"):
        make_line().take_head()
