"""Single kernels of the native library, called on numpy arrays."""

import ctypes
from dataclasses import dataclass

import numpy as np

from ranks.native.library import (
    INSTRUCTION_SETS,
    NativeLibrary,
    NoLibrary,
    open_library,
)
from ranks.native.packing import GROUP, PackedMatrix, pack
from ranks.native.structs import address, matrix_struct

TILE_ROWS = 8


def usable_sets() -> list[str]:
    """The sets of instructions that this machine has; none without a library."""
    found = []
    for name in INSTRUCTION_SETS:
        try:
            open_library(name)
        except NoLibrary:
            continue
        found.append(name)
    return found


class _Activations(ctypes.Structure):
    _fields_ = (
        ("values", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("weighted_sums", ctypes.c_void_p),
        ("sums", ctypes.c_void_p),
        ("groups", ctypes.c_int32),
    )


class _FineActivations(ctypes.Structure):
    _fields_ = (
        ("values", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("weighted_sums", ctypes.c_void_p),
        ("groups", ctypes.c_int32),
    )


class _Task(ctypes.Structure):
    _fields_ = (
        ("keys", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("table", ctypes.c_void_p),
        ("block_size", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("num_queries", ctypes.c_int32),
        ("queries", ctypes.c_void_p),
        ("results", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("stops", ctypes.c_void_p),
        ("scores", ctypes.c_void_p),
        ("stride", ctypes.c_int64),
    )


@dataclass
class TiledRows:
    """Activations as they lie in memory; `rows` takes them apart."""

    values: np.ndarray
    scales: np.ndarray
    weighted_sums: np.ndarray
    sums: np.ndarray
    num_rows: int

    def struct(self) -> _Activations:
        return _Activations(
            *map(address, (self.values, self.scales, self.weighted_sums, self.sums)),
            self.weighted_sums.shape[1],
        )

    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values [rows, inputs], scales [rows, halves], weighted sums [rows, groups]."""
        values = self.values.transpose(0, 2, 1, 3).reshape(-1, self.weighted_sums.shape[1] * GROUP)
        by_row = [x.transpose(0, 2, 1).reshape(values.shape[0], -1) for x in self._floats()]
        return values[: self.num_rows], by_row[0][: self.num_rows], by_row[1][: self.num_rows]

    def _floats(self):
        return self.scales, self.weighted_sums


@dataclass
class FineRows:
    """Activations in fifteen bits, row by row."""

    values: np.ndarray
    scales: np.ndarray
    weighted_sums: np.ndarray

    def struct(self) -> _FineActivations:
        return _FineActivations(
            *map(address, (self.values, self.scales, self.weighted_sums)), self.scales.shape[1]
        )


class Kernels:
    """All kernels of one set of instructions."""

    def __init__(self, name: str) -> None:
        self.library: NativeLibrary = open_library(name)
        self._functions = self.library.functions
        self._set = name.encode()

    def quantize(self, x: np.ndarray) -> TiledRows:
        tiles, groups = -(-len(x) // TILE_ROWS), x.shape[1] // GROUP
        tiled = TiledRows(
            values=np.zeros((tiles, groups * 8, TILE_ROWS, 4), np.int8),
            scales=np.zeros((tiles, groups * 2, TILE_ROWS), np.float32),
            weighted_sums=np.zeros((tiles, groups, TILE_ROWS), np.float32),
            sums=np.zeros((tiles, groups * 2, TILE_ROWS), np.int32),
            num_rows=len(x),
        )
        struct = tiled.struct()
        self._functions.lanehost_quantize(self._set, address(x), len(x), ctypes.byref(struct))
        return tiled

    def product(self, weight: PackedMatrix, x: np.ndarray) -> np.ndarray:
        tiled, struct = self.quantize(x), matrix_struct(weight)
        y = np.full((len(x), weight.outputs), np.nan, np.float32)
        self._functions.lanehost_product(
            self._set, ctypes.byref(struct), 0, weight.outputs // 16,
            ctypes.byref(tiled.struct()), len(x), address(y),
        )  # fmt: skip
        return y

    def quantize_finely(self, x: np.ndarray) -> FineRows:
        fine = FineRows(
            values=np.full(x.shape, 7, np.int16),
            scales=np.full((len(x), x.shape[1] // GROUP), np.nan, np.float32),
            weighted_sums=np.full((len(x), x.shape[1] // GROUP), np.nan, np.float32),
        )
        struct = fine.struct()
        self._functions.lanehost_quantize_finely(
            self._set, address(x), len(x), ctypes.byref(struct)
        )
        return fine

    def product_finely(self, weight: PackedMatrix, x: np.ndarray) -> np.ndarray:
        fine, struct = self.quantize_finely(x), matrix_struct(weight)
        y = np.full((len(x), weight.outputs), np.nan, np.float32)
        self._functions.lanehost_product_finely(
            self._set, ctypes.byref(struct), 0, weight.outputs // 16,
            ctypes.byref(fine.struct()), len(x), address(y),
        )  # fmt: skip
        return y

    def norm(self, x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
        y = np.empty_like(x)
        for row, to in zip(x, y, strict=True):
            self._functions.lanehost_norm(
                self._set, address(row), address(weight), len(row), ctypes.c_float(eps), address(to)
            )
        return y

    def rotate(
        self, heads: np.ndarray, cos: np.ndarray, sin: np.ndarray, scale: float
    ) -> np.ndarray:
        heads = heads.copy()
        for row, c, s in zip(heads, cos, sin, strict=True):
            for head in row:
                self._functions.lanehost_rotate(
                    self._set, address(head), address(c), address(s), len(head),
                    ctypes.c_float(scale),
                )  # fmt: skip
        return heads

    def gate(self, gates: np.ndarray, ups: np.ndarray) -> np.ndarray:
        y = np.empty_like(gates)
        self._functions.lanehost_gate(
            self._set, address(gates), address(ups), gates.size, address(y)
        )
        return y

    def to_half(self, x: np.ndarray) -> np.ndarray:
        y = np.empty(x.shape, np.float16)
        self._functions.lanehost_to_half(self._set, address(x), x.size, address(y))
        return y

    def attend(self, queries: np.ndarray, cache: "PagedHead", bounds: np.ndarray) -> np.ndarray:
        """[queries, head_dim] over positions [start, stop) of each, int32 [queries, 2]."""
        results = np.full_like(queries, np.nan)
        stride = -(-int(bounds.max()) // 16) * 16
        scores = np.full((8, stride), np.nan, np.float32)
        starts, stops = (np.ascontiguousarray(part) for part in bounds.T)
        pointers = [
            np.array([row.ctypes.data for row in rows], np.uint64) for rows in (queries, results)
        ]
        task = _Task(
            *map(address, (cache.keys, cache.values, cache.table)),
            cache.block_size, queries.shape[1], len(queries),
            *map(address, (*pointers, starts, stops, scores)),
            stride,
        )  # fmt: skip
        self._functions.lanehost_attend(self._set, ctypes.byref(task))
        return results


@dataclass
class PagedHead:
    """One KV head of a lane, in blocks: keys [head_dim, size], values [size, head_dim]."""

    keys: np.ndarray
    values: np.ndarray
    table: np.ndarray
    block_size: int

    @classmethod
    def holding(
        cls, keys: np.ndarray, values: np.ndarray, block_size: int, table: np.ndarray
    ) -> "PagedHead":
        """Float16 [positions, head_dim] each; what no position fills is not a number."""
        shape = (int(table.max()) + 1, block_size, keys.shape[1])
        paged = cls(
            keys=np.full((shape[0], shape[2], shape[1]), np.nan, np.float16),
            values=np.full(shape, np.nan, np.float16),
            table=table,
            block_size=block_size,
        )
        for at, (key, value) in enumerate(zip(keys, values, strict=True)):
            block, inside = table[at // block_size], at % block_size
            paged.keys[block, :, inside] = key
            paged.values[block, inside] = value
        return paged


def random_matrix(
    kind_name: str, outputs: int, inputs: int, random: np.random.Generator
) -> PackedMatrix:
    """Any bytes as quants, scales and minimums around 0.01."""
    groups = inputs // GROUP
    num_halves, num_bytes = {"Q4_0": (1, 16), "Q4_1": (2, 16), "Q8_0": (1, 32)}[kind_name]
    halves = random.normal(0, 0.01, (outputs, groups, num_halves)).astype("<f2").view(np.uint8)
    quants = random.integers(0, 256, (outputs, groups, num_bytes), dtype=np.uint8)
    raw = np.concatenate((halves, quants), axis=2).reshape(outputs, -1)
    return pack(kind_name, raw, inputs)
