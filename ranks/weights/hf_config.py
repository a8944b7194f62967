"""From a Hugging Face config.json to a `ModelConfig`.

Laws: what would change the numbers and is not built is refused by name. A field that
is not there has the default of the family's class in `transformers`; null is a value of
its own, and is refused where that class refuses it.
"""

import json
from pathlib import Path
from typing import Any

from ranks.errors import BadCheckpoint
from ranks.weights.model_config import (
    FAMILIES,
    LinearRope,
    Llama3Rope,
    ModelConfig,
    RopeScaling,
)

_MAX_JSON_BYTES = 64 << 20
_MAX_REAL = 1e30  # JSON knows whole numbers that no float can hold

# What the family's class in `transformers` takes for a field that is not there.
_EVERYWHERE: dict[str, Any] = {
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
}
_QWEN: dict[str, Any] = _EVERYWHERE | {
    "num_key_value_heads": 32,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": _EVERYWHERE | {"attention_bias": False, "mlp_bias": False},
    "mistral": _EVERYWHERE | {"num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": _QWEN,
    "qwen3": _QWEN | {"head_dim": 128, "attention_bias": False},
}
# Where null stands for what follows from the other sizes.
_NULL_HEAD_DIM = ("llama", "mistral")
_NULL_KV_HEADS = ("llama", "qwen2", "qwen3")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file of bounded size.

    Raises:
        BadCheckpoint: The file is missing, too large or not a JSON object.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_JSON_BYTES + 1)
        if len(text) > _MAX_JSON_BYTES:
            raise BadCheckpoint(f"{path}: larger than the limit of {_MAX_JSON_BYTES} bytes")
        value = json.loads(text)
    except (OSError, ValueError, RecursionError) as err:
        raise BadCheckpoint(f"{path}: cannot be read: {err}") from err
    if not isinstance(value, dict):
        raise BadCheckpoint(f"{path}: a JSON object is needed")
    return value


def read_hf_config(path: Path) -> ModelConfig:
    """Read config.json.

    Raises:
        BadCheckpoint: The model type or an option of it is not supported, or a field is
            missing or of the wrong kind.
    """
    values = read_json(path)
    family = values.get("model_type")
    if family not in FAMILIES:
        raise BadCheckpoint(
            f"{path}: model_type is {family!r}, supported are {', '.join(FAMILIES)}"
        )
    fields = _Fields(path, _DEFAULTS[str(family)] | values)
    _refuse_unbuilt(fields)
    return _build(fields, str(family))


class _Fields:
    """Typed look-ups in a JSON object."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path = path
        self.values = values

    def error(self, message: str) -> BadCheckpoint:
        return BadCheckpoint(f"{self.path}: {message}")

    def whole(self, name: str) -> int:
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(f"{name} is {value!r}, a whole number is needed")
        if abs(value) > _MAX_REAL:
            raise self.error(f"{name} is beyond the limit of {_MAX_REAL}")
        return value

    def real(self, name: str) -> float:
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(f"{name} is {value!r}, a number is needed")
        if abs(value) > _MAX_REAL:
            raise self.error(f"{name} is beyond the limit of {_MAX_REAL}")
        return float(value)

    def truth(self, name: str) -> bool:
        value = self.values.get(name)
        if not isinstance(value, bool):
            raise self.error(f"{name} is {value!r}, true or false is needed")
        return value


def _refuse_unbuilt(fields: _Fields) -> None:
    for name, built in (("hidden_act", ("silu",)), ("partial_rotary_factor", (None, 1))):
        value = fields.values.get(name)
        if value not in built:
            raise fields.error(f"{name} is {value!r}, supported is {built[-1]!r}")
    if fields.values.get("quantization_config") is not None:
        raise fields.error("quantization_config: quantised safetensors are not supported")


def _build(fields: _Fields, family: str) -> ModelConfig:
    num_layers, num_heads = fields.whole("num_hidden_layers"), fields.whole("num_attention_heads")
    hidden_size = fields.whole("hidden_size")
    context_length = fields.whole("max_position_embeddings")
    can_bias = family in ("llama", "qwen3") and fields.truth("attention_bias")
    theta, scaling = _read_rope(fields, context_length)
    return ModelConfig(
        family=family,
        vocab_size=fields.whole("vocab_size"),
        context_length=context_length,
        hidden_size=hidden_size,
        intermediate_size=fields.whole("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=_num_kv_heads(fields, family, num_heads),
        head_dim=_head_dim(fields, family, hidden_size // max(1, num_heads)),
        norm_eps=fields.real("rms_norm_eps"),
        rope_theta=theta,
        rope_scaling=scaling,
        has_qkv_bias=family == "qwen2" or can_bias,
        has_output_bias=can_bias,
        has_mlp_bias=family == "llama" and fields.truth("mlp_bias"),
        has_qk_norm=family == "qwen3",
        is_tied=fields.truth("tie_word_embeddings"),
        layer_windows=_read_windows(fields, family, num_layers, context_length),
    )


def _num_kv_heads(fields: _Fields, family: str, num_heads: int) -> int:
    if family in _NULL_KV_HEADS and fields.values.get("num_key_value_heads") is None:
        return num_heads
    return fields.whole("num_key_value_heads")


def _head_dim(fields: _Fields, family: str, even_share: int) -> int:
    is_null = "head_dim" not in fields.values or fields.values["head_dim"] is None
    if is_null and (family in _NULL_HEAD_DIM or "head_dim" not in fields.values):
        return even_share
    return fields.whole("head_dim")


def _read_rope(fields: _Fields, context_length: int) -> tuple[float, RopeScaling | None]:
    """`rope_parameters` holds all since version 5; before, `rope_theta` and `rope_scaling`."""
    for name in ("rope_scaling", "rope_parameters"):
        values = fields.values.get(name)
        if values is not None and not isinstance(values, dict):
            raise fields.error(f"{name} is {values!r}, an object is needed")
        if values:
            return _read_rope_of(fields, name, values, context_length)
    return fields.real("rope_theta"), None


def _read_rope_of(
    fields: _Fields, name: str, values: dict[str, Any], context_length: int
) -> tuple[float, RopeScaling | None]:
    for key, value in values.items():
        if isinstance(value, dict):
            raise fields.error(
                f"{name} has an entry for {key!r}: rotary positions by layer type are not supported"
            )
    defaults = {
        "rope_theta": fields.values["rope_theta"],
        "original_max_position_embeddings": context_length,
    }
    rope = _Fields(fields.path, defaults | values)
    if values.get("partial_rotary_factor") not in (None, 1):
        raise fields.error("partial_rotary_factor: only whole heads can be rotated")
    theta = rope.real("rope_theta")
    kind = values.get("rope_type", values.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, LinearRope(factor=rope.real("factor"))
    if kind == "llama3":
        return theta, _llama3_rope(rope)
    raise fields.error(f"rope_type is {kind!r}, supported are default, linear and llama3")


def _llama3_rope(rope: _Fields) -> Llama3Rope:
    return Llama3Rope(
        factor=rope.real("factor"),
        low_freq_factor=rope.real("low_freq_factor"),
        high_freq_factor=rope.real("high_freq_factor"),
        original_context_length=rope.whole("original_max_position_embeddings"),
    )


def _read_windows(
    fields: _Fields, family: str, num_layers: int, context_length: int
) -> tuple[int | None, ...]:
    """Which layers see only a window; a window of the whole context is none."""
    num_layers = max(0, min(num_layers, 1 << 16))  # ModelConfig refuses what is out of bounds
    if family == "llama":
        return (None,) * num_layers
    is_windowed = _windowed_layers(fields, family, num_layers)
    is_used = family == "mistral" or fields.truth("use_sliding_window")
    if not is_used or fields.values["sliding_window"] is None:
        if family != "mistral" and any(is_windowed) and fields.values.get("layer_types"):
            raise fields.error("layer_types has 'sliding_attention' without a sliding_window")
        return (None,) * num_layers
    window = fields.whole("sliding_window")
    if window < 1:
        raise fields.error(f"sliding_window is {window}, it must be at least 1")
    kept = window if window < context_length else None
    return tuple(kept if one else None for one in is_windowed)


def _windowed_layers(fields: _Fields, family: str, num_layers: int) -> list[bool]:
    if family == "mistral":  # whatever layer_types says
        return [True] * num_layers
    first, kinds = fields.whole("max_window_layers"), fields.values.get("layer_types")
    if kinds is None:
        return [layer >= first for layer in range(num_layers)]
    if not isinstance(kinds, list) or len(kinds) != num_layers:
        raise fields.error(f"layer_types must name {num_layers} layers")
    known = {"full_attention": False, "sliding_attention": True}
    for kind in kinds:
        if not isinstance(kind, str) or kind not in known:
            raise fields.error(f"layer_types has {kind!r}, supported are {', '.join(known)}")
    return [known[kind] for kind in kinds]
