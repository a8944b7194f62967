"""From the config.json of a Gemma 3 to a `ModelConfig`.

Laws: as in `ranks.weights.hf_config`. A model with eyes has its text's fields in an object of
their own.
"""

from pathlib import Path
from typing import Any

from ranks.weights.json_fields import JsonFields
from ranks.weights.model_config import GemmaConfig, ModelConfig, Rope, VisionConfig
from ranks.weights.rope_config import read_rope_values
from ranks.weights.vision_config import read_vision_config

_WITH_EYES, _TEXT_ONLY = "gemma3", "gemma3_text"
GEMMA_TYPES = (_WITH_EYES, _TEXT_ONLY)
FAMILY = "gemma3"

# What the family's class in `transformers` takes for a field that is not there.
_DEFAULTS: dict[str, Any] = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
}
_EYES: dict[str, Any] = {"mm_tokens_per_image": 256, "image_token_index": 262_144}
_PATTERN = 6  # every so-manieth layer sees all
_KINDS = {"sliding_attention": True, "full_attention": False}


def read_gemma_config(path: Path, values: dict[str, Any]) -> ModelConfig:
    """Read the object of config.json.

    Raises:
        BadCheckpoint: An option of it is not supported, or a field is of the wrong kind.
    """
    whole = JsonFields(path, values)
    if values.get("model_type") == _WITH_EYES:
        text = whole.part("text_config", _DEFAULTS)
        return _build(text, read_vision_config(JsonFields(path, _EYES | values)))
    return _build(JsonFields(path, _DEFAULTS | values), None)


def _build(fields: JsonFields, vision: VisionConfig | None) -> ModelConfig:
    _refuse_unbuilt(fields)
    num_layers, hidden_size = fields.whole("num_hidden_layers"), fields.whole("hidden_size")
    context_length = fields.whole("max_position_embeddings")
    is_local = _local_layers(fields, max(0, min(num_layers, 1 << 16)))
    window = fields.whole("sliding_window") if any(is_local) else 1
    if window < 1:
        raise fields.error(f"sliding_window is {window}, it must be at least 1")
    ropes = {kind: _read_rope(fields, kind, context_length) for kind in _KINDS}
    has_bias = fields.truth("attention_bias")
    return ModelConfig(
        family=FAMILY,
        vocab_size=fields.whole("vocab_size"),
        context_length=context_length,
        hidden_size=hidden_size,
        intermediate_size=fields.whole("intermediate_size"),
        num_layers=num_layers,
        num_heads=fields.whole("num_attention_heads"),
        num_kv_heads=fields.whole("num_key_value_heads"),
        head_dim=fields.whole("head_dim"),
        norm_eps=fields.real("rms_norm_eps"),
        rope_theta=ropes["full_attention"].theta,
        rope_scaling=ropes["full_attention"].scaling,
        has_qkv_bias=has_bias,
        has_output_bias=has_bias,
        has_mlp_bias=False,
        has_qk_norm=True,
        is_tied=fields.truth("tie_word_embeddings"),
        layer_windows=tuple(
            window if one and window < context_length else None for one in is_local
        ),
        gemma=GemmaConfig(
            local_rope=ropes["sliding_attention"],
            is_local=is_local,
            score_scale=_positive(fields, "query_pre_attn_scalar") ** -0.5,
            embedding_scale=_positive(fields, "hidden_size") ** 0.5,
            norm_offset=1.0,
            vision=vision,
        ),
    )


def _refuse_unbuilt(fields: JsonFields) -> None:
    for name, built in (
        ("hidden_activation", "gelu_pytorch_tanh"),
        ("final_logit_softcapping", None),
        ("attn_logit_softcapping", None),
        ("quantization_config", None),
    ):
        value = fields.values.get(name)
        if value != built:
            raise fields.error(f"{name} is {value!r}, supported is {built!r}")
    if fields.values.get("use_bidirectional_attention"):
        raise fields.error("use_bidirectional_attention: only text that is causal is supported")


def _positive(fields: JsonFields, name: str) -> float:
    value = fields.real(name)
    if value <= 0:
        raise fields.error(f"{name} is {value}, it must be positive")
    return value


def _local_layers(fields: JsonFields, num_layers: int) -> tuple[bool, ...]:
    """Which layers see a window only."""
    kinds = fields.values.get("layer_types")
    if kinds is None:
        key = "sliding_window_pattern"
        pattern = fields.whole(key) if key in fields.values else _PATTERN
        if pattern < 1:
            raise fields.error(f"{key} is {pattern}, it must be at least 1")
        return tuple((layer + 1) % pattern != 0 for layer in range(num_layers))
    if not isinstance(kinds, list) or len(kinds) != num_layers:
        raise fields.error(f"layer_types must name {num_layers} layers")
    for kind in kinds:
        if not isinstance(kind, str) or kind not in _KINDS:
            raise fields.error(f"layer_types has {kind!r}, supported are {', '.join(_KINDS)}")
    return tuple(_KINDS[kind] for kind in kinds)


def _read_rope(fields: JsonFields, kind: str, context_length: int) -> Rope:
    """`rope_parameters` has an object for each kind of layer, `rope_scaling` is of the full."""
    is_full = kind == "full_attention"
    values: dict[str, Any] = {}
    by_kind = _object(fields, "rope_parameters")
    if by_kind.get(kind) is not None:
        values |= JsonFields(fields.path, by_kind).part(kind, {}).values
    if is_full:
        values |= _object(fields, "rope_scaling")
    theta = fields.values["rope_theta" if is_full else "rope_local_base_freq"]
    return read_rope_values(fields, values, theta=theta, context_length=context_length)


def _object(fields: JsonFields, name: str) -> dict[str, Any]:
    value = fields.values.get(name)
    if value is not None and not isinstance(value, dict):
        raise fields.error(f"{name} is {value!r}, an object is needed")
    return value or {}
