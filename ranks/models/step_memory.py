"""What a step takes beside weights and KV, so that the pool leaves room for it.

Laws: an estimate is never below what a step of that size allocates on the CPU in float32
(a test compares them); it holds for any plan within the step's limits. It does not count
what a matrix library keeps for itself.
"""

from dataclasses import dataclass

from ranks.layers.attention import MAX_SCORES, AttentionHeads
from ranks.models.native_layout import MAX_KEPT
from ranks.native.parts import ModelShape
from ranks.step_inputs import MAX_GROUP_POSITIONS
from ranks.weights.model_config import ModelConfig

_FLOAT32, _FLOAT64 = 4, 8
# Positions are padded by at most a quarter (`ranks.step_inputs`).
_PADDED = 1.25
# Scores, and the shares that softmax makes of them.
_SCORE_COPIES = 2
# Rows of these widths are alive at once: the stream, its norm, a product and its shards'
# sum; merged, rotated and attended heads; gate and up.
_HIDDEN_COPIES, _HEAD_COPIES, _MLP_COPIES = 5, 5, 3
# A row of logits: this rank's part, gathered, joined, in float32.
_LOGIT_COPIES = 4
# The native path: the stream, what was looked up, its raw groups, the shards' sum; gate and
# up of one group of columns; queries that a thread scores at once; rows that lie together.
_NATIVE_HIDDEN_COPIES, _MLP_UNIT, _QUERIES, _TILE_ROWS = 6, 64, 8, 8
# One drawn row at a time: scores, noise and their parts, in 8 bytes each.
_SAMPLER_COPIES = 12
# A row that a thread of the library draws: tokens that are left, and those in order.
_DRAW_COPIES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """The largest step that a plan may ask for."""

    max_step_tokens: int
    num_lanes: int


def step_bytes(
    config: ModelConfig, heads: AttentionHeads, limits: StepLimits, *, mlp_width: int, itemsize: int
) -> int:
    """Bytes that a step takes whatever the length of its lanes.

    Args:
        config: The model.
        heads: The heads of this rank.
        limits: The largest step.
        mlp_width: Columns of this rank's part of the MLP.
        itemsize: Bytes of a value of the type that is computed with.
    """
    row = row_bytes(config, heads, mlp_width=mlp_width, itemsize=itemsize)
    gathered = MAX_GROUP_POSITIONS * 2 * heads.num_kv_heads * heads.head_dim
    draws = limits.num_lanes * (config.hidden_size * _HIDDEN_COPIES * itemsize)
    draws += limits.num_lanes * config.vocab_size * _LOGIT_COPIES * _FLOAT32
    return (
        limits.max_step_tokens * row
        + gathered * itemsize
        + MAX_SCORES * (_SCORE_COPIES * _FLOAT32 + itemsize)
        + draws
        + config.vocab_size * _SAMPLER_COPIES * _FLOAT64
    )


def row_bytes(config: ModelConfig, heads: AttentionHeads, *, mlp_width: int, itemsize: int) -> int:
    """Bytes that a step takes for each of its rows, beside what attention takes."""
    width = (heads.num_heads + 2 * heads.num_kv_heads) * heads.head_dim
    values = _HIDDEN_COPIES * config.hidden_size + _HEAD_COPIES * width + _MLP_COPIES * mlp_width
    return values * itemsize


def step_bytes_per_position(
    config: ModelConfig, heads: AttentionHeads, limits: StepLimits, *, itemsize: int
) -> int:
    """Bytes that a step takes for each position of its longest lane.

    That is one layer's keys and values of the lane, what its queries do not see, and the
    scores of a single query. Takes the arguments of `step_bytes`.
    """
    gathered = 2 * heads.num_kv_heads * heads.head_dim * itemsize
    masks = (limits.max_step_tokens + 2 * 128) * len(set(config.layer_windows))
    scores = heads.num_heads * (_SCORE_COPIES * _FLOAT32 + itemsize)
    return int((gathered + masks + scores) * _PADDED) + 1


def native_step_bytes(
    config: ModelConfig, shape: ModelShape, limits: StepLimits, *, num_threads: int
) -> int:
    """What `step_bytes` is for the native path.

    A quantized value takes a byte, and a group of 32 twelve more.
    """
    heads = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    attended = shape.num_heads * shape.head_dim
    values = _NATIVE_HIDDEN_COPIES * shape.hidden + heads + attended + num_threads * _MLP_UNIT
    quantized = shape.hidden + attended + sum(shape.mlp_parts)
    row = values * _FLOAT32 + quantized * (32 + 12) // 32 + shape.head_dim * 4 * _FLOAT64
    # A row of the head takes two bytes a value.
    draw = config.vocab_size * _LOGIT_COPIES * _FLOAT32 + 2 * shape.hidden
    draws = limits.num_lanes * draw
    rows = limits.max_step_tokens + _TILE_ROWS
    kept = min(config.context_length, MAX_KEPT) * config.head_dim * _FLOAT32
    draws += kept * 2  # while more of it is made, it is there twice
    sampled = config.vocab_size * max(_SAMPLER_COPIES, num_threads * _DRAW_COPIES) * _FLOAT64
    return int(rows * row * _PADDED) + draws + sampled


def native_step_bytes_per_position(limits: StepLimits, *, num_threads: int) -> int:
    """What `step_bytes_per_position` is for the native path: scores, and tables of blocks."""
    return num_threads * _QUERIES * _FLOAT32 + limits.num_lanes * _FLOAT64
