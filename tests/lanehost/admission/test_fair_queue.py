from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.admission.fair_queue import FairQueue
from tests.support.jobs import make_sequence

costs = st.integers(1, 50)
weights = st.integers(1, 9)


def take(queue):
    """Take whoever is next."""
    head = queue.head()
    assert head is not None
    queue.take(head)
    return head


def make(scope="a", *, cost=4, job_id=None):
    return make_sequence((1,) * cost, max_tokens=0, scope=scope, job_id=job_id)


def join(queue, scope="a", *, cost=4, job_id=None):
    sequence = make(scope, cost=cost, job_id=job_id)
    queue.join(sequence)
    return sequence


def take_all(queue):
    taken = []
    while queue.head() is not None:
        taken.append(take(queue))
    return taken


def names(sequences):
    return " ".join(sequence.job.job_id for sequence in sequences)


def queue_of(names, **weights):
    """Queue jobs of one cost, each named after its scope and its number in it."""
    queue = FairQueue(weights)
    jobs = {name: join(queue, name[0], job_id=name) for name in names.split()}
    return queue, jobs


@given(costs=st.lists(costs))
def test_one_scope_is_a_plain_queue(costs):
    queue = FairQueue({})
    joined = [join(queue, cost=cost) for cost in costs]
    assert take_all(queue) == joined


@pytest.mark.parametrize(
    ("weights", "joined", "taken"),
    [
        ({"a": 2, "b": 1}, "a1 a2 a3 a4 b1 b2", "a1 b1 a2 a3 b2 a4"),
        ({"a": 1, "b": 1}, "a1 a2 a3 b1 b2 b3", "a1 b1 a2 b2 a3 b3"),
        ({"a": 1, "b": 3}, "a1 a2 b1 b2 b3 b4", "a1 b1 b2 b3 a2 b4"),
        # Nobody has a weight: all have the same.
        ({}, "a1 a2 b1 c1", "a1 b1 c1 a2"),
    ],
)
def test_scopes_take_turns_by_weight(weights, joined, taken):
    queue, _ = queue_of(joined, **weights)
    assert names(take_all(queue)) == taken


def test_a_job_costs_its_prompt_and_its_most_tokens():
    queue = FairQueue({})
    queue.join(make_sequence((1,) * 2, max_tokens=8, scope="a", job_id="a1"))
    queue.join(make_sequence((1,) * 2, max_tokens=8, scope="a", job_id="a2"))
    for number in range(1, 7):
        queue.join(make_sequence((1,), max_tokens=1, scope="b", job_id=f"b{number}"))
    assert names(take_all(queue)) == "a1 b1 b2 b3 b4 b5 a2 b6"


class Backlog:
    """A queue in which some scopes always have jobs waiting, and the work taken of each."""

    def __init__(self, weights, draw_cost):
        self.weights = weights
        self.queue = FairQueue(weights)
        self.draw_cost = draw_cost
        self.work = dict.fromkeys(weights, Fraction(0))
        self.largest = dict.fromkeys(weights, Fraction(0))

    def join(self, scope):
        cost = self.draw_cost()
        join(self.queue, scope, cost=cost)
        self.largest[scope] = max(self.largest[scope], Fraction(cost, self.weights[scope]))

    def take(self):
        job = take(self.queue).job
        self.work[job.scope] += Fraction(job.num_tokens, self.weights[job.scope])
        return job


@given(weights=st.lists(weights, min_size=3, max_size=4), data=st.data())
def test_of_two_scopes_that_keep_jobs_waiting_neither_gets_ahead_by_more_than_a_job_of_each(
    weights, data
):
    """The bound of the paper, for every interval: l_f / w_f + l_m / w_m, the largest jobs.

    The last scope comes and goes as it likes.
    """
    *steady, guest = names = "abcd"[: len(weights)]
    backlog = Backlog(dict(zip(names, weights, strict=True)), lambda: data.draw(costs))
    for scope in steady * 2:
        backlog.join(scope)
    pairs = list(combinations(steady, 2))
    ahead = {pair: [Fraction(0)] for pair in pairs}
    for _ in range(25):
        if data.draw(st.booleans()):
            backlog.join(guest)
        taken = backlog.take()
        if taken.scope != guest:
            backlog.join(taken.scope)
        for one, other in pairs:
            ahead[one, other].append(backlog.work[one] - backlog.work[other])
    for one, other in pairs:
        most = backlog.largest[one] + backlog.largest[other]
        assert max(ahead[one, other]) - min(ahead[one, other]) <= most


@given(weights=st.tuples(weights, weights), data=st.data())
def test_one_job_at_a_time_waits_for_no_more_than_its_last_one_was_worth_and_one_job(weights, data):
    flood, quiet = weights
    backlog = Backlog({"flood": flood, "quiet": quiet}, lambda: data.draw(costs))
    for _ in range(5):
        backlog.join("flood")
    worth = Fraction(0)
    for _ in range(5):
        backlog.join("quiet")
        before = backlog.work["flood"]
        while (taken := backlog.take()).scope == "flood":
            backlog.join("flood")
        assert backlog.work["flood"] - before <= worth + backlog.largest["flood"]
        worth = Fraction(taken.num_tokens, quiet)


def test_one_large_job_at_a_time_takes_no_more_than_its_part():
    queue, _ = queue_of("a1 a2 a3 a4 a5 a6 a7")
    join(queue, "b", cost=12, job_id="b1")
    taken = [take(queue), take(queue)]
    join(queue, "b", cost=12, job_id="b2")
    assert names(taken + take_all(queue)) == "a1 b1 a2 a3 a4 b2 a5 a6 a7"


def test_who_was_away_has_saved_nothing_up():
    queue, _ = queue_of("a1 a2 a3 a4 a5 a6")
    for _ in range(3):
        take(queue)
    for number in range(1, 4):
        join(queue, "b", job_id=f"b{number}")
    assert names(take_all(queue)) == "b1 a4 b2 a5 b3 a6"


def test_when_nobody_waits_nobody_owes_anything():
    queue = FairQueue({})
    join(queue, "a", cost=1000)
    take_all(queue)
    for number in (1, 2):
        join(queue, "a", job_id=f"a{number}")
        join(queue, "b", job_id=f"b{number}")
    assert names(take_all(queue)) == "a1 b1 a2 b2"


def test_who_leaves_is_not_charged():
    queue, jobs = queue_of("a1 a2 a3 b1 b2")
    queue.leave(jobs["a1"])
    queue.leave(jobs["a2"])
    assert names(take_all(queue)) == "a3 b1 b2"
    assert repr(queue) == "<FairQueue 0 in front, {}>"


def test_who_comes_back_is_first_in_its_scope_and_is_not_charged_again():
    queue, _ = queue_of("a1 a2 a3 b1 b2")
    first = take(queue)
    assert names([queue.head()]) == "b1"
    take(queue)
    queue.rejoin(first)
    assert names(take_all(queue)) == "a1 a2 b2 a3"


def test_with_one_scope_who_comes_back_is_the_head_and_the_last_to_come_back_the_first():
    queue, _ = queue_of("a1 a2 a3 a4")
    first, second = take(queue), take(queue)
    queue.rejoin(second)
    queue.rejoin(first)
    assert names(take_all(queue)) == "a1 a2 a3 a4"


def test_who_comes_back_stays_behind_the_head_of_another_scope_and_before_its_next_ones():
    queue, _ = queue_of("a1 a2 b1 b2")
    first = take(queue)
    queue.rejoin(first)
    assert names([queue.head()]) == "b1"
    assert names(take_all(queue)) == "b1 a1 a2 b2"


def test_a_head_that_was_given_way_to_stays_before_who_gave_way_whoever_comes():
    queue, _ = queue_of("b0 b1 b2 a1 a2 c1 c2 d1")
    b0, a1, c1, d1 = (take(queue) for _ in range(4))
    assert names([b0, a1, c1, d1, queue.head()]) == "b0 a1 c1 d1 b1"
    queue.rejoin(a1)
    queue.rejoin(b0)
    queue.rejoin(c1)
    join(queue, "e", cost=1, job_id="e1")
    assert names(take_all(queue)) == "b0 c1 b1 a1 e1 a2 c2 b2"


def test_a_head_that_was_given_way_to_may_leave():
    queue, jobs = queue_of("a1 a2 b1 b2")
    queue.rejoin(take(queue))
    queue.leave(jobs["b1"])
    assert repr(queue) == "<FairQueue 1 in front, {'a': 1, 'b': 1}>"
    assert names(take_all(queue)) == "a1 b2 a2"


def test_a_scope_of_which_only_what_came_back_waits_starts_now():
    queue, _ = queue_of("a1 b1 b2 b3 b4 b5")
    first = take(queue)
    take(queue)
    take(queue)
    queue.rejoin(first)
    take(queue)
    assert names([queue.head()]) == "a1"
    for number in (2, 3):
        join(queue, "a", job_id=f"a{number}")
    assert names(take_all(queue)) == "a1 a2 b4 a3 b5"


def given_way_to():
    """Two scopes, c and d, came at 0 while a2, which starts at 4, is kept as the head."""
    queue, _ = queue_of("a1 a2 b1")
    take(queue)
    queue.rejoin(take(queue))
    join(queue, "c", job_id="c1")
    join(queue, "d", job_id="d1")
    assert names([take(queue), take(queue)]) == "a2 b1"
    return queue


def test_now_never_goes_back():
    queue = given_way_to()
    join(queue, "c", job_id="c2")
    take(queue)
    join(queue, "e", job_id="e1")
    assert names(take_all(queue)) == "d1 c2 e1"


def test_more_jobs_of_a_scope_do_not_put_off_its_first():
    queue = given_way_to()
    join(queue, "c", job_id="c2")
    assert names(take_all(queue)) == "c1 d1 c2"


def test_a_scope_that_is_passed_over_loses_no_turn():
    queue = FairQueue({})
    first, second, other = (make_sequence(scope=scope, max_tokens=9) for scope in ("a", "a", "b"))
    for sequence in (first, second, other):
        queue.join(sequence)
    assert queue.head(without={"a"}) is other
    queue.take(other)
    assert queue.head(without={"a"}) is None
    assert [take(queue), take(queue)] == [first, second]


def test_who_came_back_is_passed_over_with_its_scope():
    queue = FairQueue({})
    back, other = make_sequence(scope="a"), make_sequence(scope="b")
    queue.join(back)
    queue.take(back)
    queue.join(other)
    queue.rejoin(back)
    assert queue.head(without={"b"}) is back
    assert queue.head(without={"a"}) is other
