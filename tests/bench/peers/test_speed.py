"""Sides run in turn; one that is absent or fails has no figure."""

from dataclasses import dataclass, field

from bench.peers.children import ChildFailed
from bench.peers.shape import Shape
from bench.peers.sides import Measured
from bench.peers.speed import run_rounds
from bench.peers.tools import Absent


@dataclass
class FakeSide:
    name: str
    calls: list = field(default_factory=list)
    refuses: Exception | None = None
    fails_in: int | None = None
    num_runs: int = 0

    def prepare(self):
        if self.refuses is not None:
            raise self.refuses
        return f"note of {self.name}"

    def measure(self, shape):
        self.calls.append(self.name)
        self.num_runs += 1
        if self.num_runs == self.fails_in:
            raise ChildFailed("it broke")
        return Measured(speeds={"prefill": float(self.num_runs)}, peak_bytes=10 - self.num_runs)


def run_sides(sides, num_rounds):
    return run_rounds(sides, Shape(), num_rounds, lambda _: None)


def test_every_other_round_goes_backwards():
    calls = []

    found = run_sides([FakeSide("a", calls), FakeSide("b", calls)], 3)

    assert calls == ["a", "b", "b", "a", "a", "b"]
    assert [one["a"]["prefill"] for one in found.rounds] == [1.0, 2.0, 3.0]


def test_an_absent_side_is_named_and_never_run():
    calls = []
    absent = FakeSide("b", calls, refuses=Absent("pip install b"))
    broken = FakeSide("c", calls, refuses=ChildFailed("bad file"))

    found = run_sides([FakeSide("a", calls), absent, broken], 1)

    assert calls == ["a"]
    assert found.without == {
        "b": "absent: pip install b",
        "c": "cannot be made ready: bad file",
    }
    assert found.notes == {"a": "note of a"}
    assert found.rounds == [{"a": {"prefill": 1.0}}]


def test_a_side_that_fails_in_a_round_has_no_figure_there():
    found = run_sides([FakeSide("a"), FakeSide("b", fails_in=2)], 2)

    assert found.rounds == [
        {"a": {"prefill": 1.0}, "b": {"prefill": 1.0}},
        {"a": {"prefill": 2.0}},
    ]
    assert found.without == {"b": "failed in round 2: it broke"}


def test_the_peak_of_memory_is_the_most_of_all_rounds():
    assert run_sides([FakeSide("a")], 3).peak_bytes == {"a": 9}
