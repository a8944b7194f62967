"""The kernels once more, in numpy: what they compute, and what runs without a compiler.

Laws: every function gives the bits of the kernel of the same name in `csrc/`. For that,
each float is made by the same additions and multiplications in the same order; sums of
integers are exact in any order. It is slow: what is wide is done at once, what has an
order is done with `accumulate`, which adds from the left.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ranks.native.packing import GROUP, Groups, PackedMatrix, unpack
from ranks.native.parts import Floats

_VECTOR = 16
# Below this a group counts as zeros: 127 / x would not be a number.
_LEAST = np.uint32(0x0DA24260).view(np.float32)
_FINEST = np.float32(16383)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedRows:
    """Rows of int8 or int16 [rows, inputs], and what turns them into numbers.

    Shapes: `scales` [rows, halves of groups, or groups]; `weighted_sums` [rows, groups], the sum of
    what the values of a group stand for.
    """

    values: npt.NDArray[np.int8] | npt.NDArray[np.int16]
    scales: Floats
    weighted_sums: Floats


def quantize(x: Floats) -> QuantizedRows:
    """Quantize [rows, inputs], each half of a group by its own greatest magnitude."""
    grouped = x.reshape(x.shape[0], -1, GROUP // 2)
    with np.errstate(all="ignore"):
        greatest = np.abs(grouped).max(axis=2)  # not a number where one of them is not
        is_finite = np.isfinite(greatest)
        is_used = is_finite & (greatest >= _LEAST)
        factors = np.float32(127) / np.where(is_used, greatest, np.float32(1))
        rounded = np.rint(grouped * factors[:, :, None])
        values = np.where(is_used[:, :, None], rounded, 0).astype(np.int8)
        scales = np.where(is_used, greatest / np.float32(127), np.float32(0))
        scales = np.where(is_finite, scales, np.float32(np.nan)).astype(np.float32)
        sums = values.sum(axis=2, dtype=np.int32).astype(np.float32)
        weighted = (sums * scales).reshape(x.shape[0], -1, 2)
        weighted_sums = weighted[:, :, 0] + weighted[:, :, 1]
    return QuantizedRows(values=values.reshape(x.shape), scales=scales, weighted_sums=weighted_sums)


def quantize_finely(x: Floats) -> QuantizedRows:
    """Quantize [rows, inputs] in fifteen bits; there is one scale for a group here, not two."""
    grouped = x.reshape(x.shape[0], -1, GROUP)
    with np.errstate(all="ignore"):
        greatest = np.abs(grouped).max(axis=2)
        is_finite = np.isfinite(greatest)
        is_used = is_finite & (greatest >= _LEAST)
        factors = _FINEST / np.where(is_used, greatest, np.float32(1))
        rounded = np.rint(grouped * factors[:, :, None])
        values = np.where(is_used[:, :, None], rounded, 0).astype(np.int16)
        scales = np.where(is_used, greatest / _FINEST, np.float32(0))
        scales = np.where(is_finite, scales, np.float32(np.nan)).astype(np.float32)
        weighted_sums = values.sum(axis=2, dtype=np.int32).astype(np.float32) * scales
    return QuantizedRows(values=values.reshape(x.shape), scales=scales, weighted_sums=weighted_sums)


class ReferenceMatrix:
    """A packed matrix, taken apart for numpy."""

    def __init__(self, matrix: PackedMatrix) -> None:
        groups: Groups = unpack(matrix)
        num_groups = matrix.inputs // GROUP
        # [halves, 16, outputs]: the sums of a half stay far below 2^24, so they are exact.
        shaped = groups.quants.reshape(matrix.outputs, num_groups * 2, GROUP // 2)
        self._quants = np.ascontiguousarray(shaped.transpose(1, 2, 0))
        self._scales = groups.scales.T.astype(np.float32)
        self._minimums = None if groups.minimums is None else groups.minimums.T.astype(np.float32)

    def product(self, x: QuantizedRows) -> Floats:
        """[rows, inputs] → [rows, outputs]."""
        rows, num_halves = x.scales.shape
        values = x.values.reshape(rows, num_halves, -1).astype(np.float32)
        total = np.zeros((rows, self._quants.shape[2]), dtype=np.float32)

        def half(number: int) -> Floats:
            sums: Floats = values[:, number] @ self._quants[number].astype(np.float32)
            return sums * x.scales[:, number, None]

        with np.errstate(all="ignore"):
            for group in range(num_halves // 2):
                total += (half(2 * group) + half(2 * group + 1)) * self._scales[group]
                if self._minimums is not None:
                    total += self._minimums[group] * x.weighted_sums[:, group, None]
        return total

    def product_finely(self, x: QuantizedRows) -> Floats:
        """[rows, inputs] in fifteen bits → [rows, outputs]."""
        rows, num_groups = x.scales.shape
        # Sums of a group stay below 2^27: exact in double precision, rounded once after it.
        values = x.values.reshape(rows, num_groups, -1).astype(np.float64)
        total = np.zeros((rows, self._quants.shape[2]), dtype=np.float32)
        with np.errstate(all="ignore"):
            for group in range(num_groups):
                quants = self._quants[2 * group : 2 * group + 2].reshape(GROUP, -1)
                sums = (values[:, group] @ quants.astype(np.float64)).astype(np.float32)
                total += sums * x.scales[:, group, None] * self._scales[group]
                if self._minimums is not None:
                    total += self._minimums[group] * x.weighted_sums[:, group, None]
        return total


def norm(x: Floats, weight: Floats, eps: float) -> Floats:
    """Root mean square norm of [..., width]."""
    with np.errstate(all="ignore"):
        squares = (x * x).reshape(*x.shape[:-1], -1, _VECTOR)
        mean = _tree(_sum_in_order(squares, axis=-2)) / np.float32(x.shape[-1])
        factor = np.float32(1) / np.sqrt(mean + np.float32(eps))
        normed: Floats = x * factor[..., None] * weight
    return normed


def rotate(heads: Floats, cos: Floats, sin: Floats, scale: float) -> Floats:
    """Rotate [rows, heads, head_dim] by [rows, head_dim / 2], and scale."""
    first, second = np.split(heads, 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    with np.errstate(all="ignore"):
        halves = (first * cos - second * sin, second * cos + first * sin)
        rotated: Floats = np.concatenate(halves, axis=-1) * np.float32(scale)
    return rotated


def gate(gates: Floats, ups: Floats) -> Floats:
    """Silu of the gates times the ups."""
    with np.errstate(all="ignore"):
        gated: Floats = gates / (np.float32(1) + exponential(-gates)) * ups
    return gated


def exponential(x: Floats) -> Floats:
    """e^x by a polynomial, between e^-87 and e^88."""
    number = np.float32
    x = np.where(number(-87) > x, number(-87), x)
    x = np.where(number(88) < x, number(88), x)
    shift = number(12582912)
    whole = (x * number(1.44269504) + shift) - shift
    rest = x - whole * number(0.693359375)
    rest = rest - whole * number(-2.12194440e-4)
    total = np.full_like(rest, number(1.9875691500e-4))
    for factor in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5):
        total = total * rest + number(factor)
    total = total * (rest * rest) + (rest + number(1))
    powers: Floats = np.ldexp(number(1), np.nan_to_num(whole).astype(np.int32))
    result: Floats = total * powers
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysValues:
    """What one KV head holds of one lane: each float32 [positions, head_dim]."""

    keys: Floats
    values: Floats


def attend(queries: Floats, seen: KeysValues, start: int, stop: int) -> Floats:
    """Attend with [queries, head_dim], scaled already, to the positions [start, stop)."""
    with np.errstate(all="ignore"):
        # [queries, positions], added from the first value of the head to the last.
        products = queries[:, :, None] * seen.keys[start:stop].T[None]
        scores = _sum_in_order(products, axis=1)
        shares = exponential(scores - scores.max(axis=1, keepdims=True))
        begin = start // _VECTOR * _VECTOR
        padded = np.pad(shares, ((0, 0), (start - begin, -stop % _VECTOR)))
        totals = _tree(_sum_in_order(padded.reshape(len(queries), -1, _VECTOR), axis=1))
        weighed = _sum_in_order(shares[:, :, None] * seen.values[None, start:stop], axis=1)
        attended: Floats = weighed * (np.float32(1) / totals)[:, None]
    return attended


def _sum_in_order(x: Floats, axis: int) -> Floats:
    """Add along an axis, from the first to the last, beginning with zero."""
    zeros = np.zeros_like(np.take(x, [0], axis=axis))
    running = np.add.accumulate(np.concatenate((zeros, x), axis=axis), axis=axis)
    total: Floats = np.take(running, -1, axis=axis)
    return total


def _tree(x: Floats) -> Floats:
    """Add sixteen values as the kernels do: i + 8, i + 4, i + 2, i + 1."""
    for width in (8, 4, 2, 1):
        x = x[..., :width] + x[..., width : 2 * width]
    return x[..., 0]
