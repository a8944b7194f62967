"""The compiled kernels, through ctypes: a call leaves Python's lock to others.

Laws: a library made of other sources than those beside it is not used. The set of
instructions is chosen once, the widest that this processor has.
"""

import ctypes
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ranks.native.build import LIBRARY, source_digest
from ranks.native.packing import PackedMatrix
from ranks.native.parts import Floats, LayerParts, ModelShape, StepRows
from ranks.noise import DrawnRow, noise_key
from ranks.shards import Exchange

INSTRUCTION_SETS = ("avx512", "avx2", "neon", "portable")
# `Part` of watch.h.
PART_NAMES = ("norm", "products", "rotate", "attention", "exchange", "head")
_MAX_SHARDS = 2
_POINTER = ctypes.c_void_p
Array = npt.NDArray[Any]


class NoLibrary(Exception):
    """There is no library to use; the message says why."""


class MatrixStruct(ctypes.Structure):
    """`Matrix` of kernels.h."""

    _fields_ = (
        ("data", _POINTER),
        ("kind", ctypes.c_int32),
        ("outputs", ctypes.c_int32),
        ("inputs", ctypes.c_int32),
    )


class _ShapeStruct(ctypes.Structure):
    """`Shape` of model.h."""

    _fields_ = (
        ("hidden", ctypes.c_int32),
        ("num_heads", ctypes.c_int32),
        ("num_kv_heads", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("num_shards", ctypes.c_int32),
        ("head_parts", ctypes.c_int32 * _MAX_SHARDS),
        ("mlp_parts", ctypes.c_int32 * _MAX_SHARDS),
        ("norm_eps", ctypes.c_float),
        ("score_scale", ctypes.c_float),
    )


class _LayerStruct(ctypes.Structure):
    """`Layer` of model.h."""

    _fields_ = (
        ("input_norm", _POINTER),
        ("mlp_norm", _POINTER),
        ("query_norm", _POINTER),
        ("key_norm", _POINTER),
        ("qkv", MatrixStruct * 3),
        ("qkv_bias", _POINTER),
        ("output", MatrixStruct * _MAX_SHARDS),
        ("gate", MatrixStruct),
        ("up", MatrixStruct),
        ("gate_bias", _POINTER),
        ("up_bias", _POINTER),
        ("down", MatrixStruct * _MAX_SHARDS),
        ("output_bias", _POINTER),
        ("down_bias", _POINTER),
        ("window", ctypes.c_int64),
    )


class _PoolStruct(ctypes.Structure):
    """`Pool` of model.h."""

    _fields_ = (
        ("data", _POINTER),
        ("layer_stride", ctypes.c_int64),
        ("part_stride", ctypes.c_int64),
        ("head_stride", ctypes.c_int64),
        ("block_size", ctypes.c_int64),
    )


class _StepStruct(ctypes.Structure):
    """`Step` of model.h."""

    _fields_ = (
        ("rows", ctypes.c_int32),
        ("num_lanes", ctypes.c_int32),
        ("positions", _POINTER),
        ("lane_rows", _POINTER),
        ("tables", _POINTER),
        ("table_at", _POINTER),
        ("cos", _POINTER),
        ("sin", _POINTER),
        ("pool", _PoolStruct),
    )


class _DrawStruct(ctypes.Structure):
    """`Draw` of sampler.h."""

    _fields_ = (
        ("temperature", ctypes.c_double),
        ("top_p", ctypes.c_double),
        ("log_min_p", ctypes.c_double),
        ("top_k", ctypes.c_int64),
        ("key", ctypes.c_uint64),
    )


class NativeLibrary:
    """The functions of one library, and the set of instructions that models of it use."""

    def __init__(self, path: Path, instruction_set: str) -> None:
        self.functions = ctypes.CDLL(str(path))
        self.instruction_set = instruction_set
        self.functions.lanehost_sources.restype = ctypes.c_char_p
        self.functions.lanehost_new_model.restype = _POINTER
        self.functions.lanehost_num_stages.restype = ctypes.c_uint64

    def sources(self) -> str:
        """Digest of the sources that it was made of."""
        return bytes(self.functions.lanehost_sources()).decode()

    def can_run(self, instruction_set: str) -> bool:
        """Whether a set was built, and this processor has it."""
        return bool(self.functions.lanehost_can_run(instruction_set.encode()))


def open_library(instruction_set: str | None = None, path: Path = LIBRARY) -> NativeLibrary:
    """Open the library for a set of instructions; without one, for the widest there is.

    Raises:
        NoLibrary: It is absent, cannot be loaded, is stale, or lacks the set.
    """
    if not path.exists():
        raise NoLibrary("it was not built")
    try:
        library = NativeLibrary(path, instruction_set or "")
    except OSError as err:
        raise NoLibrary(f"it cannot be loaded: {err}") from err
    if library.sources() != source_digest():
        raise NoLibrary("it was built from other sources: python -m ranks.native.build")
    wanted = (instruction_set,) if instruction_set else INSTRUCTION_SETS
    for name in wanted:
        if library.can_run(name):
            library.instruction_set = name
            return library
    raise NoLibrary(f"this processor or this build has none of {', '.join(wanted)}")


def why_no_library(path: Path = LIBRARY) -> str | None:
    """Say why the library cannot be used, or None when it can."""
    try:
        open_library(path=path)
    except NoLibrary as err:
        return str(err)
    return None


class NativeEngine:
    """A model in the library; implements `Engine`."""

    can_exchange = True

    def __init__(
        self,
        library: NativeLibrary,
        shape: ModelShape,
        layers: Sequence[LayerParts],
        *,
        num_threads: int,
    ) -> None:
        self.name = library.instruction_set
        self._functions = library.functions
        self._layers = layers  # the library points into them
        self._logits = np.empty(0, dtype=np.float32)
        structs = (_LayerStruct * len(layers))(*map(_layer_struct, layers))
        self._model = _POINTER(
            self._functions.lanehost_new_model(
                ctypes.byref(_shape_struct(shape)),
                structs,
                len(layers),
                library.instruction_set.encode(),
                num_threads,
            )
        )
        assert self._model.value is not None

    def __del__(self) -> None:
        if getattr(self, "_model", None) is not None:
            self._functions.lanehost_end_model(self._model)

    def run(self, step: StepRows, x: Floats, exchange: Exchange | None = None) -> None:
        """Run all layers on x [rows, hidden], in place; the shares of ranks meet in `exchange`.

        Raises:
            FellowLost: Another rank did not do its part.
        """
        at = _POINTER(None if exchange is None else exchange.address)
        code = self._functions.lanehost_run(self._model, _step_struct(step), address(x), at)
        if exchange is not None:
            exchange.check(code)

    def attention_half(self, step: StepRows, layer: int, x: Floats) -> Floats:
        """This rank's share of the attention's sum over shards: [rows, hidden]."""
        share = np.empty_like(x)
        self._functions.lanehost_attention_half(
            self._model, _step_struct(step), layer, address(x), address(share)
        )
        return share

    def mlp_half(self, layer: int, x: Floats) -> Floats:
        """This rank's share of the MLP's sum over shards: [rows, hidden]."""
        share = np.empty_like(x)
        self._functions.lanehost_mlp_half(self._model, layer, address(x), len(x), address(share))
        return share

    def add_total(self, total: Floats, bias: Floats | None, x: Floats) -> None:
        """Add what a half gave, summed over all ranks, to x [rows, hidden], in place."""
        self._functions.lanehost_add_total(
            self._model, address(total), address(bias), len(x), address(x)
        )

    def parts_ns(self) -> dict[str, int]:
        """Nanoseconds of each part of the last step."""
        found = np.zeros(len(PART_NAMES), dtype=np.int64)
        self._functions.lanehost_parts(self._model, address(found))
        return dict(zip(PART_NAMES, found.tolist(), strict=True))

    def num_stages(self) -> int:
        """Stages that were run so far; from any thread, also while one runs."""
        return int(self._functions.lanehost_num_stages(self._model))

    def head(self, x: Floats, norm: Floats, weight: PackedMatrix) -> Floats:
        """Norm and project [rows, hidden] → [rows, outputs of the weight].

        The next call writes its own to the same place.
        """
        # Pages that are new in every step would take as long as drawing from them.
        if len(x) * weight.outputs > self._logits.size:
            self._logits = np.empty(len(x) * weight.outputs, dtype=np.float32)
        logits = self._logits[: len(x) * weight.outputs].reshape(len(x), -1)
        self._functions.lanehost_head(
            self._model, address(x), address(norm), ctypes.byref(matrix_struct(weight)), len(x),
            address(logits),
        )  # fmt: skip
        return logits

    def draw_rows(self, logits: Floats, drawn: Sequence[DrawnRow]) -> list[int]:
        """The token that each of some rows of logits [n, vocab] draws; see `Engine`."""
        rows = np.array([one.row for one in drawn], dtype=np.int32)
        structs = (_DrawStruct * len(drawn))()  # of zeros: the likeliest token
        for number, one in enumerate(drawn):
            if one.draw.temperature > 0:
                structs[number] = _draw_struct(one)
        token_ids = np.empty(len(drawn), dtype=np.int64)
        self._functions.lanehost_draw(
            self._model, address(logits), logits.shape[1], address(rows), structs, len(drawn),
            address(token_ids),
        )  # fmt: skip
        return token_ids.tolist()


def address(array: Array | None) -> ctypes.c_void_p:
    """Where an array lies, null for none."""
    assert array is None or array.flags.c_contiguous
    return _POINTER(None if array is None else array.ctypes.data)


def matrix_struct(matrix: PackedMatrix) -> MatrixStruct:
    """The struct of a matrix, which must live as long as the struct is used."""
    return MatrixStruct(address(matrix.data), int(matrix.kind), matrix.outputs, matrix.inputs)


def _draw_struct(drawn: DrawnRow) -> _DrawStruct:
    draw = drawn.draw
    return _DrawStruct(
        temperature=draw.temperature,
        top_p=draw.top_p,
        log_min_p=math.log(draw.min_p) if draw.min_p > 0 else -math.inf,
        top_k=draw.top_k or 0,
        key=noise_key(draw.seed, drawn.position),
    )


def _shape_struct(shape: ModelShape) -> _ShapeStruct:
    pair = ctypes.c_int32 * _MAX_SHARDS
    return _ShapeStruct(
        hidden=shape.hidden,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        num_shards=len(shape.head_parts),
        head_parts=pair(*shape.head_parts),
        mlp_parts=pair(*shape.mlp_parts),
        norm_eps=shape.norm_eps,
        score_scale=shape.score_scale,
    )


def _layer_struct(layer: LayerParts) -> _LayerStruct:
    by_shard = MatrixStruct * _MAX_SHARDS
    return _LayerStruct(
        input_norm=address(layer.input_norm),
        mlp_norm=address(layer.mlp_norm),
        query_norm=address(layer.query_norm),
        key_norm=address(layer.key_norm),
        qkv=(MatrixStruct * 3)(*map(matrix_struct, layer.qkv)),
        qkv_bias=address(layer.qkv_bias),
        output=by_shard(*map(matrix_struct, layer.output)),
        gate=matrix_struct(layer.gate),
        up=matrix_struct(layer.up),
        gate_bias=address(layer.gate_bias),
        up_bias=address(layer.up_bias),
        down=by_shard(*map(matrix_struct, layer.down)),
        output_bias=address(layer.output_bias),
        down_bias=address(layer.down_bias),
        window=layer.window or 0,
    )


def _step_struct(step: StepRows) -> Any:  # what byref gives has no public name
    pool = step.pool
    # The library writes where the tables point; what is below 0 is far above as this type.
    assert step.tables.view(np.uint64).max() < pool.shape[3]
    layer, part, head = (stride // pool.itemsize for stride in pool.strides[:3])
    return ctypes.byref(
        _StepStruct(
            rows=len(step.positions),
            num_lanes=len(step.table_at),
            positions=address(step.positions),
            lane_rows=address(step.lane_rows),
            tables=address(step.tables),
            table_at=address(step.table_at),
            cos=address(step.cos),
            sin=address(step.sin),
            pool=_PoolStruct(
                data=address(pool),
                layer_stride=layer,
                part_stride=part,
                head_stride=head,
                block_size=pool.shape[4],
            ),
        )
    )
