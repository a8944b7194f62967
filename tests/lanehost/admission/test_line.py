import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lanehost.admission.line import Line
from lanehost.errors import Overloaded
from lanehost.settings import LineSettings
from tests.support.jobs import make_sequence


def make_line(*, max_waiting=4, max_waiting_tokens=100):
    return Line(LineSettings(max_waiting=max_waiting, max_waiting_tokens=max_waiting_tokens))


def join(line, job):
    line.promise()
    line.join(job)


def test_a_full_line_refuses_at_once_with_the_numbers():
    line = make_line(max_waiting=2)
    join(line, make_sequence())
    line.promise()
    with pytest.raises(Overloaded, match=r"2 requests wait, limit 2") as caught:
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
    with pytest.raises(Overloaded, match=r"11 prompt tokens would wait, limit 10"):
        line.join(make_sequence((1,) * 3))
    assert (len(line), line.num_tokens) == (1, 8)
    assert repr(line) == "<Line 1 jobs, 0 promised>"


def test_a_job_alone_may_pass_the_token_bound():
    line = make_line(max_waiting_tokens=10)
    join(line, make_sequence((1,) * 50))
    assert len(line) == 1


def test_a_place_that_was_not_promised_cannot_be_given_up():
    with pytest.raises(AssertionError):
        make_line().withdraw()


class LineMachine(RuleBasedStateMachine):
    """The line against a plain list."""

    def __init__(self):
        super().__init__()
        self.line = make_line(max_waiting=5, max_waiting_tokens=30)
        self.waiting: list = []
        self.promised = 0

    @rule()
    def promise(self):
        full = len(self.waiting) + self.promised >= 5
        try:
            self.line.promise()
        except Overloaded:
            assert full
        else:
            assert not full
            self.promised += 1

    @precondition(lambda self: self.promised)
    @rule(num_tokens=st.integers(1, 20))
    def join(self, num_tokens):
        job = make_sequence((1,) * num_tokens)
        waiting_tokens = sum(len(other.token_ids) for other in self.waiting)
        self.promised -= 1
        try:
            self.line.join(job)
        except Overloaded:
            assert self.waiting
            assert waiting_tokens + num_tokens > 30
        else:
            self.waiting.append(job)

    @precondition(lambda self: self.promised)
    @rule()
    def withdraw(self):
        self.line.withdraw()
        self.promised -= 1

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def take(self, data):
        job = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(job)
        assert self.line.take(job.job.job_id) is job
        assert self.line.take(job.job.job_id) is None

    @rule(num_tokens=st.integers(1, 20))
    def rejoin(self, num_tokens):
        parked = make_sequence((1,) * num_tokens)
        self.line.rejoin(parked)
        self.waiting.insert(0, parked)

    @invariant()
    def first_come_first_served(self):
        assert self.line.head() is (self.waiting[0] if self.waiting else None)

    @invariant()
    def counts_are_true(self):
        assert len(self.line) == len(self.waiting)
        assert self.line.num_tokens == sum(len(job.token_ids) for job in self.waiting)


TestLine = LineMachine.TestCase
