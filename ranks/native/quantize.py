"""Floats rounded to the groups that the kernels take, for weights that a file holds as floats.

    eight bits  weight ~ scale · quant, quants -127 to 127, as in a Q8_0
    four bits   weight ~ scale · quant + minimum, quants 0 to 15, as in a Q4_1

Laws: a group is its own: what is beside it changes no bit of it, so a matrix may be cut on
groups before or after. Every float is made by additions, multiplications and divisions in
one order, which are the same on every processor. What such groups hold comes back as it
was: of eight bits where a quant is 127 or -127, of four where one is 0 and one is 15.

The error of eight bits is at most half a scale. Four bits take the best, by the sum of
squared errors, of some scales and minimums: a few ranges, from the whole one to narrower
ones that clip an end, each also with the scale and minimum that fit its quants best. One
of them clips nothing and errs by at most half its scale.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ranks.native.packing import GROUP, Groups
from ranks.native.parts import Floats

# Scales and minimums are halves: what is beyond has none.
LARGEST = 65504.0
_MOST_EIGHT, _MOST_FOUR = np.float32(127), np.float32(15)
# What a range leaves out at its low and its high end. Measured on normally distributed
# groups: 19 % less squared error than the whole range alone, of 21 % that 16 ranges with
# two fits each find in ten times the time.
_CLIPPED = ((0.0, 0.0), (0.04, 0.0), (0.0, 0.04), (0.04, 0.04))
# Groups at once: what is held of them lies in the second-level cache.
_GROUPS_AT_ONCE = 2048


class NotHeld(Exception):
    """A value that groups cannot hold: not a finite number, or too large."""

    def __init__(self, value: float) -> None:
        super().__init__(f"{value:g}, allowed are finite values up to {LARGEST:g}")


def quantize_eight(values: Floats) -> Groups:
    """Round [rows, inputs].

    Raises:
        NotHeld: A value has no place in a group.
    """
    grouped = _grouped(values)
    greatest = np.abs(grouped).max(axis=2)
    scales = (greatest / _MOST_EIGHT).astype(np.float16)
    # A scale that was rounded far down, as the smallest are, would clip.
    is_short = scales.astype(np.float32) * np.float32(127.5) < greatest
    scales = np.where(is_short, np.nextafter(scales, np.float16(np.inf)), scales)
    quants = np.rint(grouped / _or_one(scales.astype(np.float32))[:, :, None])
    np.clip(quants, -_MOST_EIGHT, _MOST_EIGHT, out=quants)
    return Groups(quants=quants.astype(np.int8).reshape(values.shape), scales=scales, minimums=None)


def quantize_four(values: Floats) -> Groups:
    """Round [rows, inputs].

    Raises:
        NotHeld: A value has no place in a group.
    """
    grouped = _grouped(values).reshape(-1, GROUP)
    quants = np.empty(grouped.shape, dtype=np.uint8)
    scales, minimums = (np.empty(len(grouped), dtype=np.float16) for _ in range(2))
    for begin in range(0, len(grouped), _GROUPS_AT_ONCE):
        part = slice(begin, begin + _GROUPS_AT_ONCE)
        best = _search(np.ascontiguousarray(grouped[part].T))
        quants[part] = best.quants.T.astype(np.uint8)
        scales[part], minimums[part] = best.scales, best.minimums
    by_row = (values.shape[0], -1)
    return Groups(
        quants=quants.reshape(values.shape),
        scales=scales.reshape(by_row),
        minimums=minimums.reshape(by_row),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Groups rounded in some way, each by a column: quants are [32, groups]."""

    scales: Floats
    minimums: Floats
    quants: Floats
    errors: Floats

    def take_better(self, other: "_Found") -> None:
        """Take over the groups of `other` that err less; where both err alike, nothing."""
        is_better = other.errors < self.errors
        np.copyto(self.scales, other.scales, where=is_better)
        np.copyto(self.minimums, other.minimums, where=is_better)
        np.copyto(self.quants, other.quants, where=is_better)
        np.copyto(self.errors, other.errors, where=is_better)


def _search(values: Floats) -> _Found:
    """Round [32, groups] in every way, and keep the best for each group."""
    low, high = values.min(axis=0), values.max(axis=0)
    width = high - low
    under = _rounded_down(low)
    best = _round(values, _rounded_up((high - under) / _MOST_FOUR), under)
    for left_out, right_out in _CLIPPED:
        scales = width * np.float32((1 - left_out - right_out) / 15)
        found = _round(values, scales, low + np.float32(left_out) * width)
        best.take_better(found)
        best.take_better(_round(values, *_fit(values, found)))
    return best


def _round(values: Floats, scales: Floats, minimums: Floats) -> _Found:
    """Round [32, groups] by a scale and a minimum for each group."""
    scales, minimums = _as_halves(scales), _as_halves(minimums)
    quants = (values - minimums) / _or_one(scales)
    np.rint(quants, out=quants)
    np.clip(quants, 0, _MOST_FOUR, out=quants)
    errors = quants * scales
    errors += minimums
    errors -= values
    errors *= errors
    return _Found(scales=scales, minimums=minimums, quants=quants, errors=_tree(errors))


def _fit(values: Floats, found: _Found) -> tuple[Floats, Floats]:
    """Scales and minimums of the least squared error for the quants that were found."""
    quants, count, limit = found.quants, np.float32(GROUP), np.float32(LARGEST)
    total, sums = _tree(values), _tree(quants)
    spread = count * _tree(quants * quants) - sums * sums
    joint = count * _tree(values * quants) - total * sums
    scales = np.where(spread > 0, joint / _or_one(spread), found.scales)
    scales = np.clip(scales, 0, limit)
    return scales, np.clip((total - scales * sums) / count, -limit, limit)


def _grouped(values: Floats) -> Floats:
    """[rows, inputs] → [rows, groups, 32], each value one that a group can hold."""
    grouped = values.reshape(values.shape[0], -1, GROUP)
    is_held = np.abs(grouped) <= np.float32(LARGEST)  # not so where it is not a number
    if not is_held.all():
        raise NotHeld(float(grouped[~is_held][0]))
    return grouped


def _or_one(scales: Floats) -> Floats:
    """Something to divide by: of a scale of 0 all quants are 0 where the values are."""
    return np.where(scales > 0, scales, np.float32(1))


def _as_halves(values: Floats) -> Floats:
    return values.astype(np.float16).astype(np.float32)


def _rounded_down(values: Floats) -> Floats:
    halves = values.astype(np.float16)
    with np.errstate(over="ignore"):  # below the least half, where no value is
        lower = np.nextafter(halves, np.float16(-np.inf))
    found: Floats = np.where(halves.astype(np.float32) > values, lower, halves).astype(np.float32)
    return found


def _rounded_up(values: Floats) -> Floats:
    return -_rounded_down(-values)


def _tree(values: Floats) -> Floats:
    """Add 32 rows in an order that is the same everywhere."""
    width: int = GROUP
    while width > 1:
        width //= 2
        values = values[:width] + values[width : 2 * width]
    total: npt.NDArray[np.float32] = values[0]
    return total
