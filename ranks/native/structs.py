"""What the library takes, as it lies in memory: structs of its headers, made of arrays.

Laws: the order and the types of fields are those of the header that each names; an array lives as
long as a struct that points into it is used, which whoever makes one sees to.
"""

import ctypes
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ranks.native.packing import PackedMatrix
from ranks.native.parts import LayerParts, ModelShape, StepFrame, StepRows
from ranks.noise import DrawnRow, noise_key

MAX_SHARDS = 2
POINTER = ctypes.c_void_p
Array = npt.NDArray[Any]


class MatrixStruct(ctypes.Structure):
    """`Matrix` of kernels.h."""

    _fields_ = (
        ("data", POINTER),
        ("kind", ctypes.c_int32),
        ("outputs", ctypes.c_int32),
        ("inputs", ctypes.c_int32),
    )


class ShapeStruct(ctypes.Structure):
    """`Shape` of model.h."""

    _fields_ = (
        ("hidden", ctypes.c_int32),
        ("num_heads", ctypes.c_int32),
        ("num_kv_heads", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("num_shards", ctypes.c_int32),
        ("head_parts", ctypes.c_int32 * MAX_SHARDS),
        ("mlp_parts", ctypes.c_int32 * MAX_SHARDS),
        ("norm_eps", ctypes.c_float),
        ("score_scale", ctypes.c_float),
    )


class LayerStruct(ctypes.Structure):
    """`Layer` of model.h."""

    _fields_ = (
        ("input_norm", POINTER),
        ("mlp_norm", POINTER),
        ("query_norm", POINTER),
        ("key_norm", POINTER),
        ("qkv", MatrixStruct * 3),
        ("qkv_bias", POINTER),
        ("output", MatrixStruct * MAX_SHARDS),
        ("gate", MatrixStruct),
        ("up", MatrixStruct),
        ("gate_bias", POINTER),
        ("up_bias", POINTER),
        ("down", MatrixStruct * MAX_SHARDS),
        ("output_bias", POINTER),
        ("down_bias", POINTER),
        ("window", ctypes.c_int64),
    )


class _PoolStruct(ctypes.Structure):
    """`Pool` of model.h."""

    _fields_ = (
        ("data", POINTER),
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
        ("positions", POINTER),
        ("lane_rows", POINTER),
        ("tables", POINTER),
        ("table_at", POINTER),
        ("cos", POINTER),
        ("sin", POINTER),
        ("pool", _PoolStruct),
    )


class _FrameStruct(ctypes.Structure):
    """`Frame` of model.h."""

    _fields_ = (
        ("table", POINTER),
        ("table_rows", ctypes.c_int64),
        ("cos", POINTER),
        ("sin", POINTER),
        ("num_angles", ctypes.c_int64),
        ("norm", POINTER),
        ("head", MatrixStruct),
        ("pool", _PoolStruct),
        ("num_blocks", ctypes.c_int64),
    )


class DrawStruct(ctypes.Structure):
    """`Draw` of sampler.h."""

    _fields_ = (
        ("temperature", ctypes.c_double),
        ("top_p", ctypes.c_double),
        ("log_min_p", ctypes.c_double),
        ("top_k", ctypes.c_int64),
        ("key", ctypes.c_uint64),
    )


def address(array: Array | None) -> ctypes.c_void_p:
    """Where an array lies, null for none."""
    assert array is None or array.flags.c_contiguous
    return POINTER(None if array is None else array.ctypes.data)


def matrix_struct(matrix: PackedMatrix) -> MatrixStruct:
    """The struct of a matrix, which must live as long as the struct is used."""
    return MatrixStruct(address(matrix.data), int(matrix.kind), matrix.outputs, matrix.inputs)


def draw_struct(drawn: DrawnRow) -> DrawStruct:
    """How a row that is not greedy draws."""
    draw = drawn.draw
    return DrawStruct(
        temperature=draw.temperature,
        top_p=draw.top_p,
        log_min_p=math.log(draw.min_p) if draw.min_p > 0 else -math.inf,
        top_k=draw.top_k or 0,
        key=noise_key(draw.seed, drawn.position),
    )


def shape_struct(shape: ModelShape) -> ShapeStruct:
    """The sizes of a rank's part."""
    pair = ctypes.c_int32 * MAX_SHARDS
    return ShapeStruct(
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


def layer_struct(layer: LayerParts) -> LayerStruct:
    """The weights of a layer, which must live as long as this is used."""
    by_shard = MatrixStruct * MAX_SHARDS
    return LayerStruct(
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


def step_struct(step: StepRows) -> Any:  # what byref gives has no public name
    """Refer to the rows of a step."""
    # The library writes where the tables point; what is below 0 is far above as this type.
    assert step.tables.view(np.uint64).max() < step.pool.shape[3]
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
            pool=_pool_struct(step.pool),
        )
    )


def frame_struct(frame: StepFrame) -> Any:  # what byref gives has no public name
    """Refer to a frame, which must live as long as this is used."""
    return ctypes.byref(
        _FrameStruct(
            table=address(frame.table),
            table_rows=len(frame.table),
            cos=address(frame.cos),
            sin=address(frame.sin),
            num_angles=len(frame.cos),
            norm=address(frame.norm),
            head=matrix_struct(frame.head),
            pool=_pool_struct(frame.pool),
            num_blocks=frame.pool.shape[3],
        )
    )


def _pool_struct(pool: npt.NDArray[np.float16]) -> _PoolStruct:
    layer, part, head = (stride // pool.itemsize for stride in pool.strides[:3])
    return _PoolStruct(
        data=address(pool),
        layer_stride=layer,
        part_stride=part,
        head_stride=head,
        block_size=pool.shape[4],
    )
