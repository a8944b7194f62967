"""Quantized matrices as the kernels take them, made of the groups of a GGUF file or of ours.

Laws: nothing is rounded here. A packed matrix holds the very quants, scales and minimums of
its groups; a Q4_0 group, scale · (q - 8), becomes scale · q + minimum with the minimum
-8 · scale.

How a block lies in memory: `csrc/kernels.h`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ranks.large_pages import map_zeros

GROUP = 32
COLUMNS = 16
# Rows of a file that are unpacked at once: a whole vocabulary would take eight times its bytes.
ROWS_AT_ONCE = 4096
_LINE = 64
_CHUNK = 32 << 20
# Eight times more is no float16.
_MAX_Q4_0_SCALE = 8188

Bytes = npt.NDArray[np.uint8]
_Rows = TypeVar("_Rows", Bytes, npt.NDArray[np.float16])


class MatrixKind(IntEnum):
    """Bits of a quant; the numbers are those of `csrc/kernels.h`."""

    FOUR_BIT = 4
    EIGHT_BIT = 8


# Types of GGUF whose groups the kernels take: the bytes of a group, and what it becomes.
PACKABLE = {
    "Q4_0": (18, MatrixKind.FOUR_BIT),
    "Q4_1": (20, MatrixKind.FOUR_BIT),
    "Q8_0": (34, MatrixKind.EIGHT_BIT),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Quants with what turns them into weights: weight = scale · quant + minimum.

    Shapes: `quants` uint8 or int8 [outputs, inputs]; `scales` and `minimums` float16
    [outputs, groups]; groups of eight bits have no minimums.
    """

    quants: npt.NDArray[np.uint8] | npt.NDArray[np.int8]
    scales: npt.NDArray[np.float16]
    minimums: npt.NDArray[np.float16] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedMatrix:
    """A weight [outputs, inputs]; `outputs` is padded with zeros to whole blocks.

    `data` is uint8 [blocks, bytes of a block], on a line of the cache.
    """

    kind: MatrixKind
    outputs: int
    inputs: int
    data: Bytes


def pack(kind_name: str, raw: Bytes, inputs: int) -> PackedMatrix:
    """Pack rows of a GGUF, uint8 [outputs, bytes of a row], of one of the types in `PACKABLE`.

    Raises:
        OverflowError: The minimum of a group is beyond a float16.
    """

    def groups_of(rows: range) -> Groups:
        return read_groups(kind_name, raw[rows.start : rows.stop])

    return pack_groups(PACKABLE[kind_name][1], (len(raw), inputs), groups_of)


def pack_groups(
    kind: MatrixKind,
    shape: tuple[int, int],
    groups_of: Callable[[range], Groups],
    *,
    rows_at_once: int = ROWS_AT_ONCE,
) -> PackedMatrix:
    """Pack a matrix [outputs, inputs] whose rows' groups come from a call, run after run.

    `rows_at_once`, how many that are but for the last, is a multiple of `COLUMNS`.
    """
    assert rows_at_once % COLUMNS == 0
    outputs, inputs = shape
    num_blocks = -(-outputs // COLUMNS)
    data = _on_a_line(num_blocks, _block_bytes(kind, inputs // GROUP))
    for begin in range(0, outputs, rows_at_once):
        rows = range(begin, min(outputs, begin + rows_at_once))
        blocks = data[begin // COLUMNS : -(-rows.stop // COLUMNS)]
        _pack_into(blocks, kind, groups_of(rows))
    return PackedMatrix(kind=kind, outputs=num_blocks * COLUMNS, inputs=inputs, data=data)


def read_groups(kind_name: str, raw: Bytes) -> Groups:
    """Take the groups of rows apart, uint8 [outputs, bytes of a row]."""
    group_bytes, kind = PACKABLE[kind_name]
    parts = raw.reshape(raw.shape[0], -1, group_bytes)
    scales = _halves(parts, 0)
    if kind is MatrixKind.EIGHT_BIT:
        quants = np.ascontiguousarray(parts[:, :, 2:]).view(np.int8)
        return Groups(quants=quants.reshape(raw.shape[0], -1), scales=scales, minimums=None)
    minimums = _minimums_of(scales) if kind_name == "Q4_0" else _halves(parts, 2)
    both = parts[:, :, group_bytes - GROUP // 2 :]
    # A byte holds quant i in its low half and quant i + 16 in its high half.
    nibbles = np.concatenate((both & 15, both >> 4), axis=2)
    return Groups(quants=nibbles.reshape(raw.shape[0], -1), scales=scales, minimums=minimums)


def to_q8_0(groups: Groups) -> Bytes:
    """Undo `read_groups` for groups of eight bits: uint8 [outputs, bytes of a row]."""
    num_rows, num_groups = groups.scales.shape
    raw = np.empty((num_rows, num_groups, PACKABLE["Q8_0"][0]), dtype=np.uint8)
    raw[:, :, :2] = np.ascontiguousarray(groups.scales)[:, :, None].view(np.uint8)
    raw[:, :, 2:] = groups.quants.view(np.uint8).reshape(num_rows, num_groups, GROUP)
    return raw.reshape(num_rows, -1)


def to_floats(groups: Groups) -> npt.NDArray[np.float32]:
    """The weights that groups stand for: [outputs, inputs]."""
    quants = groups.quants.reshape(*groups.scales.shape, GROUP).astype(np.float32)
    values = quants * groups.scales.astype(np.float32)[:, :, None]
    if groups.minimums is not None:
        values += groups.minimums.astype(np.float32)[:, :, None]
    floats: npt.NDArray[np.float32] = values.reshape(groups.quants.shape)
    return floats


def _minimums_of(scales: npt.NDArray[np.float16]) -> npt.NDArray[np.float16]:
    """-8 times the scales of Q4_0, exactly."""
    with np.errstate(all="ignore"):
        minimums = scales * np.float16(-8)
    is_lost = np.isinf(minimums) & np.isfinite(scales)
    if is_lost.any():
        raise OverflowError(
            f"a scale of Q4_0 is {float(scales[is_lost][0])}, the limit is {_MAX_Q4_0_SCALE}"
        )
    return minimums


def unpack(matrix: PackedMatrix) -> Groups:
    """Undo `pack`; rows that fill up the last block are zeros."""
    num_groups = matrix.inputs // GROUP
    num_blocks = matrix.data.shape[0]
    if matrix.kind is MatrixKind.EIGHT_BIT:
        at = _scale_bytes(num_groups)
        scales = _by_output(matrix.data[:, : num_groups * 32], num_groups)
        quads = matrix.data[:, at:].reshape(num_blocks, num_groups, 8, COLUMNS, 4)
        quants = _quads_to_rows(quads).view(np.int8)
        return Groups(quants=quants, scales=scales, minimums=None)
    groups = matrix.data.reshape(num_blocks, num_groups, 320)
    both = groups[:, :, :256].reshape(num_blocks, num_groups, 4, 1, COLUMNS, 4)
    quads = np.concatenate((both & 15, both >> 4), axis=3)
    return Groups(
        quants=_quads_to_rows(quads.reshape(num_blocks, num_groups, 8, COLUMNS, 4)),
        scales=_by_output(groups[:, :, 256:288], num_groups),
        minimums=_by_output(groups[:, :, 288:], num_groups),
    )


def _pack_into(blocks: Bytes, kind: MatrixKind, groups: Groups) -> None:
    num_blocks, num_groups = blocks.shape[0], groups.scales.shape[1]
    quads = _rows_to_quads(_filled(groups.quants.view(np.uint8)), num_blocks, num_groups)
    scales = _by_block(_filled(groups.scales), num_blocks)
    if kind is MatrixKind.EIGHT_BIT:
        at = _scale_bytes(num_groups)
        blocks[:, : num_groups * 32] = scales.reshape(num_blocks, -1)
        blocks[:, num_groups * 32 : at] = 0
        blocks[:, at:] = quads.reshape(num_blocks, -1)
        return
    assert groups.minimums is not None
    parts = blocks.reshape(num_blocks, num_groups, 320)
    parts[:, :, :256] = (quads[:, :, 0::2] | quads[:, :, 1::2] << 4).reshape(
        num_blocks, num_groups, 256
    )
    parts[:, :, 256:288] = scales
    parts[:, :, 288:] = _by_block(_filled(groups.minimums), num_blocks)


def _filled(values: _Rows) -> _Rows:
    """Add rows of zeros up to whole blocks."""
    missing = -len(values) % COLUMNS
    return np.pad(values, ((0, missing), (0, 0))) if missing else values


def _rows_to_quads(quants: Bytes, num_blocks: int, num_groups: int) -> Bytes:
    """[outputs, inputs] → [blocks, groups, 8 quads, columns, 4]."""
    shaped = quants.reshape(num_blocks, COLUMNS, num_groups, 8, 4)
    return np.ascontiguousarray(shaped.transpose(0, 2, 3, 1, 4))


def _quads_to_rows(quads: Bytes) -> Bytes:
    num_blocks, num_groups = quads.shape[:2]
    return np.ascontiguousarray(quads.transpose(0, 3, 1, 2, 4)).reshape(
        num_blocks * COLUMNS, num_groups * GROUP
    )


def _by_block(halves: npt.NDArray[np.float16], num_blocks: int) -> Bytes:
    """[outputs, groups] → bytes [blocks, groups, 32]."""
    shaped = halves.reshape(num_blocks, COLUMNS, -1).transpose(0, 2, 1)
    return np.ascontiguousarray(shaped).view(np.uint8)


def _by_output(raw: Bytes, num_groups: int) -> npt.NDArray[np.float16]:
    halves = np.ascontiguousarray(raw).view("<f2").reshape(-1, num_groups, COLUMNS)
    return np.ascontiguousarray(halves.transpose(0, 2, 1)).reshape(-1, num_groups)


def _halves(parts: Bytes, at: int) -> npt.NDArray[np.float16]:
    return np.ascontiguousarray(parts[:, :, at : at + 2]).view("<f2")[:, :, 0]


def _scale_bytes(num_groups: int) -> int:
    return -(-num_groups * 32 // _LINE) * _LINE


def _block_bytes(kind: MatrixKind, num_groups: int) -> int:
    if kind is MatrixKind.FOUR_BIT:
        return num_groups * 320
    return _scale_bytes(num_groups) + num_groups * 512


class _Memory:
    """Hands out bytes for matrices, one after the other, from chunks of many.

    So that a product reads on from matrix to matrix within large pages, where the system has
    them: over small ones a processor fetches ahead only to the end of each. A chunk lives as
    long as any matrix in it.
    """

    def __init__(self) -> None:
        self._chunk = np.empty(0, dtype=np.uint8)

    def take(self, size: int) -> Bytes:
        """Uint8 [size] on a line of the cache, not set."""
        size_in_lines = -(-size // _LINE) * _LINE
        if size_in_lines > len(self._chunk):
            self._chunk = np.frombuffer(map_zeros(max(size_in_lines, _CHUNK)), dtype=np.uint8)
        taken, self._chunk = self._chunk[:size], self._chunk[size_in_lines:]
        return taken


_memory = _Memory()


def _on_a_line(num_blocks: int, block_bytes: int) -> Bytes:
    return _memory.take(num_blocks * block_bytes).reshape(num_blocks, block_bytes)
