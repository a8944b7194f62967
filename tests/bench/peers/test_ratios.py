"""Ratios are of figures of one round."""

import pytest

from bench.peers.ratios import fastest, median_in, ratio_in, ratio_of, reached
from bench.peers.shape import GOALS, Shape

ROUNDS = [
    {"ours": {"x": 100.0}, "a": {"x": 50.0}, "b": {"x": 10.0}},
    {"ours": {"x": 10.0}, "a": {"x": 4.0}, "b": {"x": 10.0}},
    {"ours": {"x": 90.0}, "b": {"x": 9.0}},
]


def test_a_ratio_is_taken_within_a_round_and_never_of_medians():
    ratio = ratio_in(ROUNDS, "x", over="ours", under="b")

    assert ratio is not None
    # The medians alone would give 90 / 10 = 9.
    assert (ratio.median, ratio.least, ratio.most) == (10.0, 1.0, 10.0)


def test_a_round_in_which_a_side_failed_does_not_count():
    ratio = ratio_in(ROUNDS, "x", over="ours", under="a")

    assert ratio is not None
    assert (ratio.median, ratio.least, ratio.most) == (2.25, 2.0, 2.5)


def test_without_a_round_there_is_no_ratio_and_no_median():
    assert ratio_of([]) is None
    assert ratio_in(ROUNDS, "x", over="ours", under="absent") is None
    assert ratio_in(ROUNDS, "y", over="ours", under="a") is None
    assert median_in(ROUNDS, "x", "absent") is None
    assert fastest(ROUNDS, "x", ["absent"]) is None


def test_the_fastest_is_the_one_with_the_highest_median_of_those_measured():
    assert fastest(ROUNDS, "x", ["absent", "a", "b"]) == "a"
    assert median_in(ROUNDS, "x", "a") == 27.0


@pytest.mark.parametrize(
    ("ratio", "name"), [(1.69, "-"), (1.7, "must"), (2.3, "goal"), (3.29, "goal"), (3.3, "beyond")]
)
def test_a_goal_is_reached_at_its_ratio(ratio, name):
    assert reached(ratio, "prefill", GOALS) == name


def test_every_column_has_its_goals():
    assert all(set(goals) == set(Shape().columns) for goals in GOALS.values())
