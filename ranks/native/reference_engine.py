"""A native model in numpy: for a machine without a compiler, and for the tests.

Laws: it gives the bits of the library (`csrc/model.cpp`), and keeps keys and values where
the library does, so that one could go on where the other stopped.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ranks.native import reference
from ranks.native.packing import PackedMatrix
from ranks.native.parts import Floats, LayerParts, ModelShape, StepRows
from ranks.native.reference import KeysValues, QuantizedRows, ReferenceMatrix
from ranks.shards import Exchange


class ReferenceEngine:
    """Implements `Engine`."""

    name = "numpy"
    can_exchange = False
    draw_rows = None
    forward = None

    def __init__(self, shape: ModelShape, layers: Sequence[LayerParts]) -> None:
        self._shape = shape
        self._layers = layers
        self._matrices: dict[int, ReferenceMatrix] = {}
        self._num_products = 0

    def run(self, step: StepRows, x: Floats, exchange: Exchange | None = None) -> None:
        """Run all layers on x [rows, hidden], in place, on a rank that holds all shards."""
        assert exchange is None, "numpy exchanges half a layer after the other"
        for number, layer in enumerate(self._layers):
            self.add_total(self.attention_half(step, number, x), layer.output_bias, x)
            self.add_total(self.mlp_half(number, x), layer.down_bias, x)

    def attention_half(self, step: StepRows, layer: int, x: Floats) -> Floats:
        """This rank's share of the attention's sum over shards: [rows, hidden]."""
        parts, shape = self._layers[layer], self._shape
        normed = reference.quantize(reference.norm(x, parts.input_norm, shape.norm_eps))
        merged = np.concatenate([self._product(one, normed) for one in parts.qkv], axis=1)
        if parts.qkv_bias is not None:
            merged += parts.qkv_bias
        heads = merged.reshape(len(x), -1, shape.head_dim)
        queries, keys, values = np.split(
            heads, [shape.num_heads, shape.num_heads + shape.num_kv_heads], axis=1
        )
        if parts.query_norm is not None and parts.key_norm is not None:
            queries = reference.norm(queries, parts.query_norm, shape.norm_eps)
            keys = reference.norm(keys, parts.key_norm, shape.norm_eps)
        queries = reference.rotate(queries, step.cos, step.sin, shape.score_scale)
        pool = _LayerPool(step, layer)
        pool.write(reference.rotate(keys, step.cos, step.sin, 1.0), values)
        attended = self._attend(queries, pool, parts.window)
        return self._sum_shards(parts.output, attended, self._head_widths())

    def mlp_half(self, layer: int, x: Floats) -> Floats:
        """This rank's share of the MLP's sum over shards: [rows, hidden]."""
        parts = self._layers[layer]
        normed = reference.quantize(reference.norm(x, parts.mlp_norm, self._shape.norm_eps))
        gates, ups = self._product(parts.gate, normed), self._product(parts.up, normed)
        if parts.gate_bias is not None:
            gates += parts.gate_bias
        if parts.up_bias is not None:
            ups += parts.up_bias
        return self._sum_shards(parts.down, reference.gate(gates, ups), self._shape.mlp_parts)

    def add_total(self, total: Floats, bias: Floats | None, x: Floats) -> None:
        """Add what a half gave, summed over all ranks, to x [rows, hidden], in place."""
        x += total if bias is None else total + bias

    def head(self, x: Floats, norm: Floats, weight: PackedMatrix) -> Floats:
        """Norm and project [rows, hidden] → [rows, outputs of the weight]."""
        normed = reference.norm(x, norm, self._shape.norm_eps)
        return self._taken_apart(weight).product_finely(reference.quantize_finely(normed))

    def parts_ns(self) -> dict[str, int]:
        """None: what numpy takes is of no interest."""
        return {}

    def num_stages(self) -> int:
        """Products that were taken so far."""
        return self._num_products

    def _product(self, matrix: PackedMatrix, x: QuantizedRows) -> Floats:
        """Multiply; what was taken apart is kept, at eight bits a weight."""
        return self._taken_apart(matrix).product(x)

    def _taken_apart(self, matrix: PackedMatrix) -> ReferenceMatrix:
        self._num_products += 1
        if id(matrix) not in self._matrices:
            self._matrices[id(matrix)] = ReferenceMatrix(matrix)
        return self._matrices[id(matrix)]

    def _sum_shards(
        self, matrices: tuple[PackedMatrix, ...], x: Floats, widths: tuple[int, ...]
    ) -> Floats:
        parts = np.split(x, np.cumsum(widths)[:-1], axis=1)
        total: Floats | None = None
        for matrix, part in zip(matrices, parts, strict=True):
            product = self._product(matrix, reference.quantize(part))
            total = product if total is None else total + product
        assert total is not None
        return total

    def _head_widths(self) -> tuple[int, ...]:
        return tuple(count * self._shape.head_dim for count in self._shape.head_parts)

    def _attend(self, queries: Floats, pool: "_LayerPool", window: int | None) -> Floats:
        """[rows, heads, head_dim] → [rows, heads · head_dim]."""
        rows, num_heads, dim = queries.shape
        by_kv_head = queries.reshape(rows, self._shape.num_kv_heads, -1, dim)
        attended = np.empty_like(by_kv_head)
        for row in range(rows):
            stop = pool.positions[row] + 1
            start = max(0, stop - window) if window is not None else 0
            for kv_head in range(self._shape.num_kv_heads):
                seen = pool.read(row, kv_head, stop)
                attended[row, kv_head] = reference.attend(
                    by_kv_head[row, kv_head], seen, start, stop
                )
        return attended.reshape(rows, num_heads * dim)


class _LayerPool:
    """Keys and values of one layer, as the rows of a step see them."""

    def __init__(self, step: StepRows, layer: int) -> None:
        pool = step.pool[layer]
        _, num_heads, num_blocks, self._size, dim = pool.shape
        self._keys = pool[0].reshape(num_heads, num_blocks, dim, self._size)
        self._values = pool[1]
        counts = np.diff(step.lane_rows)
        self._lane_of = np.repeat(np.arange(len(counts)), counts)
        self._tables = step.tables
        self._table_at = step.table_at
        self.positions: list[int] = step.positions.tolist()

    def write(self, keys: Floats, values: Floats) -> None:
        """Write [rows, KV heads, head_dim] each."""
        with np.errstate(over="ignore"):
            halves = keys.astype(np.float16), values.astype(np.float16)
        for row, position in enumerate(self.positions):
            block = self._table(row)[position // self._size]
            inside = position % self._size
            self._keys[:, block, :, inside] = halves[0][row]
            self._values[:, block, inside] = halves[1][row]

    def read(self, row: int, kv_head: int, stop: int) -> KeysValues:
        """What the lane of a row holds, up to `stop` at least."""
        blocks = self._table(row)[: -(-stop // self._size)]
        dim = self._values.shape[3]
        return KeysValues(
            keys=self._keys[kv_head, blocks].swapaxes(1, 2).reshape(-1, dim).astype(np.float32),
            values=self._values[kv_head, blocks].reshape(-1, dim).astype(np.float32),
        )

    def _table(self, row: int) -> npt.NDArray[np.int64]:
        return self._tables[self._table_at[self._lane_of[row]] :]
