"""From a Hugging Face config.json to a `ModelConfig`.

Laws: what would change the numbers and is not built is refused by name. A field that
is not there has the default of the family's class in `transformers`; null is a value of
its own, and is refused where that class refuses it.
"""

from pathlib import Path
from typing import Any

from ranks.errors import BadCheckpoint
from ranks.weights.gemma_config import GEMMA_TYPES, read_gemma_config
from ranks.weights.json_fields import JsonFields, read_json
from ranks.weights.model_config import ModelConfig
from ranks.weights.rope_config import read_rope

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


def read_hf_config(path: Path) -> ModelConfig:
    """Read config.json.

    Raises:
        BadCheckpoint: The model type or an option of it is not supported, or a field is
            missing or of the wrong kind.
    """
    values = read_json(path)
    family = values.get("model_type")
    if family in GEMMA_TYPES:
        return read_gemma_config(path, values)
    # A list or an object cannot be looked up.
    if not isinstance(family, str) or family not in _DEFAULTS:
        raise BadCheckpoint(
            f"{path}: model_type is {family!r}, "
            f"supported are {', '.join((*_DEFAULTS, *GEMMA_TYPES))}"
        )
    fields = JsonFields(path, _DEFAULTS[family] | values)
    _refuse_unbuilt(fields)
    return _build(fields, family)


def _refuse_unbuilt(fields: JsonFields) -> None:
    for name, built in (("hidden_act", ("silu",)), ("partial_rotary_factor", (None, 1))):
        value = fields.values.get(name)
        if value not in built:
            raise fields.error(f"{name} is {value!r}, supported is {built[-1]!r}")
    if fields.values.get("quantization_config") is not None:
        raise fields.error("quantization_config: quantised safetensors are not supported")


def _build(fields: JsonFields, family: str) -> ModelConfig:
    num_layers, num_heads = fields.whole("num_hidden_layers"), fields.whole("num_attention_heads")
    hidden_size = fields.whole("hidden_size")
    context_length = fields.whole("max_position_embeddings")
    can_bias = family in ("llama", "qwen3") and fields.truth("attention_bias")
    rope = read_rope(fields, context_length)
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
        rope_theta=rope.theta,
        rope_scaling=rope.scaling,
        has_qkv_bias=family == "qwen2" or can_bias,
        has_output_bias=can_bias,
        has_mlp_bias=family == "llama" and fields.truth("mlp_bias"),
        has_qk_norm=family == "qwen3",
        is_tied=fields.truth("tie_word_embeddings"),
        layer_windows=_read_windows(fields, family, num_layers, context_length),
    )


def _num_kv_heads(fields: JsonFields, family: str, num_heads: int) -> int:
    if family in _NULL_KV_HEADS and fields.values.get("num_key_value_heads") is None:
        return num_heads
    return fields.whole("num_key_value_heads")


def _head_dim(fields: JsonFields, family: str, even_share: int) -> int:
    is_null = "head_dim" not in fields.values or fields.values["head_dim"] is None
    if is_null and (family in _NULL_HEAD_DIM or "head_dim" not in fields.values):
        return even_share
    return fields.whole("head_dim")


def _read_windows(
    fields: JsonFields, family: str, num_layers: int, context_length: int
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


def _windowed_layers(fields: JsonFields, family: str, num_layers: int) -> list[bool]:
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
