"""Laws of `lanehost.lanes.staged_chunk`, over every layout of one and two blocks."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import pytest

from lanehost.lanes.staged_chunk import Span, staged_prefill_chunk

_MOST_ROWS = 8
_MOST_MINIMUM = 3


@dataclass(frozen=True)
class _Case:
    spans: tuple[Span, ...]
    done: int
    remaining: int
    budget: int
    minimum: int

    @cached_property
    def num_rows(self) -> int:
        return staged_prefill_chunk(
            self.spans, self.done, self.remaining, self.budget, self.minimum
        )

    def is_unsplit(self, num_rows: int) -> bool:
        at = self.done + num_rows
        return not any(start < at < stop for start, stop in self.spans)

    def is_valid(self, num_rows: int) -> bool:
        left = self.remaining - num_rows
        return num_rows >= self.minimum and (left == 0 or left >= self.minimum)

    @property
    def target(self) -> int:
        return min(self.remaining, max(self.budget, self.minimum))


def _layouts(num_rows: int) -> Iterator[tuple[Span, ...]]:
    """Yield every layout of no, one and two blocks in so many rows."""
    blocks = [(a, b) for a in range(num_rows) for b in range(a + 1, num_rows + 1)]
    yield ()
    for first in blocks:
        yield (first,)
        for second in blocks:
            if second[0] >= first[1]:
                yield (first, second)


@cache
def _cases() -> tuple[_Case, ...]:
    """Return every place that a walk may be at, of every layout, budget and minimum."""
    return tuple(_all_cases())


def _all_cases() -> Iterator[_Case]:
    for total in range(1, _MOST_ROWS + 1):
        for spans in _layouts(total):
            for done in range(total):
                if any(start < done < stop for start, stop in spans):
                    continue
                for budget in {0, 1, 2, 3, 5, total}:
                    for minimum in range(1, _MOST_MINIMUM + 1):
                        yield _Case(spans, done, total - done, budget, minimum)


def _by_oracle(case: _Case) -> int:
    """Choose by what a chunk may be, not by how it is found.

    The longest that fits and splits nothing, if it is valid; else the shortest valid one
    that does not fit.
    """
    unsplit = [n for n in range(1, case.remaining + 1) if case.is_unsplit(n)]
    fitting = [n for n in unsplit if n <= case.target]
    if fitting and case.is_valid(fitting[-1]):
        return fitting[-1]
    return next((n for n in unsplit if n > case.target and case.is_valid(n)), 0)


def test_the_chunk_is_the_one_that_an_independent_oracle_chooses() -> None:
    for case in _cases():
        assert case.num_rows == _by_oracle(case), case


def test_a_block_is_never_split() -> None:
    for case in _cases():
        assert case.is_unsplit(case.num_rows), case


def test_a_chunk_has_the_minimum_and_leaves_no_stub() -> None:
    for case in _cases():
        rows = case.num_rows
        assert rows == 0 or rows >= case.minimum, (case, rows)
        left = case.remaining - rows
        assert rows == 0 or left == 0 or left >= case.minimum, (case, rows)


def test_every_legal_walk_gets_to_its_end() -> None:
    for case in _cases():
        if case.remaining < case.minimum:
            continue
        at, walk = case, list[int]()
        while at.remaining:
            rows = at.num_rows
            assert rows > 0, (case, walk, at)
            walk.append(rows)
            at = _Case(at.spans, at.done + rows, at.remaining - rows, at.budget, at.minimum)


def test_a_chunk_is_bounded_by_its_budget_and_the_longest_block() -> None:
    for case in _cases():
        longest = max((stop - start for start, stop in case.spans), default=1)
        bound = max(case.budget, longest + case.minimum - 1) + case.minimum - 1
        assert case.num_rows <= bound, (case, case.num_rows, bound)


def test_only_a_block_or_a_stub_makes_a_chunk_longer_than_its_budget() -> None:
    for case in _cases():
        rows, most = case.num_rows, max(case.budget, case.minimum)
        if rows <= most:
            continue
        shorter = [n for n in range(1, most + 1) if case.is_unsplit(n)]
        # All that fits would split a block, be too little, or leave a stub behind it.
        finishes = not shorter or shorter[-1] < case.minimum
        takes_in = bool(shorter) and 0 < case.remaining - shorter[-1] < case.minimum
        assert finishes or takes_in, (case, rows, shorter)


@pytest.mark.parametrize(
    ("spans", "total", "walk"),
    [
        pytest.param([(2, 364)], 366, [366], id="one-block"),
        pytest.param([(2, 100), (300, 400)], 500, [256, 244], id="two-blocks"),
    ],
)
def test_the_examples_of_the_specification(spans: list[Span], total: int, walk: list[int]) -> None:
    done, walked = 0, list[int]()
    while done < total:
        walked.append(staged_prefill_chunk(spans, done, total - done, 256, 5))
        done += walked[-1]
    assert walked == walk, (spans, total, walked)
