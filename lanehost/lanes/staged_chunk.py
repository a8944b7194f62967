"""How many of a prompt's rows go into the next staged pass: image blocks stay whole.

A block is all positions of one image: in a staged pass it goes through each layer whole, so
no chunk may end inside one. `minimum` rows is the least that a family takes in one pass.

    cut(p)    the block that straddles done + p: end before it; if it starts at `done`, behind it
    valid(n)  at least the minimum, and what is left is nothing or at least the minimum

Laws: a block is never split; a chunk has the minimum at least, and leaves no stub; every
walk that begins with the minimum at least gets to its end; with B the longest block (a row
by itself is one of 1), n <= max(budget, B + minimum - 1) + (minimum - 1), and n > budget only to
finish a block that must be finished, or to take in a stub.
"""

from collections.abc import Sequence

Span = tuple[int, int]
"""A block: its first position, and the one behind its last."""


def staged_prefill_chunk(
    spans: Sequence[Span], done: int, remaining: int, budget: int, minimum: int
) -> int:
    """Return the rows of the next chunk; 0 when no chunk is allowed.

    >>> staged_prefill_chunk([(2, 364)], 0, 366, 256, 5)
    366
    >>> staged_prefill_chunk([(2, 100), (300, 400)], 0, 500, 256, 5)
    256

    Args:
        spans: The image blocks of the prompt, rising and disjoint; none straddles `done`.
        done: Rows that earlier chunks ran.
        remaining: Rows that are left.
        budget: Rows that the chunk should have at most.
        minimum: The least rows of a chunk; 1 where a family has no such bound.
    """
    for end in range(min(remaining, max(budget, minimum)), remaining + 1):
        num_rows = _cut(spans, done, end)
        left = remaining - num_rows
        if num_rows >= minimum and (left == 0 or left >= minimum):
            return num_rows
    return 0


def _cut(spans: Sequence[Span], done: int, end: int) -> int:
    """Return the rows of a chunk that was to have `end`, so that it splits no block."""
    for start, stop in spans:
        if start < done + end < stop:
            return (stop if start == done else start) - done
    return end
