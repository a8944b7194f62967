"""From the fields of a GGUF header to a `ModelConfig`.

Laws: what would change the numbers and is not built is refused by name.
"""

from pathlib import Path

from ranks.errors import BadCheckpoint
from ranks.weights.gguf_file import GgufFile
from ranks.weights.model_config import (
    MAX_HEAD_DIM,
    FactorRope,
    GemmaConfig,
    LinearRope,
    ModelConfig,
    Rope,
    RopeScaling,
)

_GEMMA = "gemma3"
_ARCHITECTURES = ("llama", "qwen2", "qwen3", _GEMMA)
# Every so-manieth layer of Gemma 3 sees all; its largest model scales scores in another way.
_PATTERN, _LAYERS_OF_27B = 6, 62
_ROPE_FACTORS = "rope_freqs.weight"


def read_gguf_config(path: Path, file: GgufFile) -> ModelConfig:
    """Read the config; tells the file how the architecture stores q and k.

    Raises:
        BadCheckpoint: The architecture or an option of it is not supported, or a field
            is missing or of the wrong kind.
    """
    architecture = file.header.fields.get("general.architecture")
    if architecture not in _ARCHITECTURES:
        raise BadCheckpoint(
            f"{path}: general.architecture is {architecture!r}, "
            f"supported are {', '.join(_ARCHITECTURES)}"
        )
    if architecture == _GEMMA:
        file.use_gemma_names()
    config = _build(_Fields(path, file, str(architecture)))
    if architecture == "llama":
        file.undo_interleaving(config.head_dim)
    return config


class _Fields:
    """Typed look-ups below `<architecture>.`."""

    def __init__(self, path: Path, file: GgufFile, architecture: str) -> None:
        self.path = path
        self.file = file
        self.architecture = architecture

    def error(self, message: str) -> BadCheckpoint:
        return BadCheckpoint(f"{self.path}: {message}")

    def find(self, name: str) -> object:
        return self.file.header.fields.get(f"{self.architecture}.{name}")

    def whole(self, name: str, default: int | None = None) -> int:
        value = self.find(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(f"{self.architecture}.{name} is {value!r}, a whole number is needed")
        return value

    def real(self, name: str, default: float | None = None) -> float:
        value = self.find(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(f"{self.architecture}.{name} is {value!r}, a number is needed")
        return float(value)

    def has(self, name: str) -> bool:
        return self.file.shape(name) is not None


def _build(fields: _Fields) -> ModelConfig:
    num_layers, num_heads = fields.whole("block_count"), fields.whole("attention.head_count")
    hidden_size = fields.whole("embedding_length")
    context_length = fields.whole("context_length")
    head_dim = fields.whole("attention.key_length", hidden_size // max(1, num_heads))
    _refuse_unbuilt(fields, head_dim=head_dim, context_length=context_length)
    embedding = fields.file.shape("embed_tokens.weight")
    if embedding is None:
        raise fields.error("tensor 'token_embd.weight' is missing")
    return ModelConfig(
        family=fields.architecture,
        vocab_size=embedding[0],
        context_length=context_length,
        hidden_size=hidden_size,
        intermediate_size=fields.whole("feed_forward_length"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=fields.whole("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        norm_eps=fields.real("attention.layer_norm_rms_epsilon"),
        rope_theta=fields.real("rope.freq_base", 10_000.0),
        rope_scaling=_rope_scaling(fields, head_dim),
        has_qkv_bias=fields.has("layers.0.self_attn.q_proj.bias"),
        has_output_bias=fields.has("layers.0.self_attn.o_proj.bias"),
        has_mlp_bias=fields.has("layers.0.mlp.up_proj.bias"),
        has_qk_norm=fields.architecture in ("qwen3", _GEMMA),
        is_tied=not fields.has("lm_head.weight"),
        layer_windows=_windows(fields, num_layers, context_length),
        gemma=_gemma(fields, num_layers) if fields.architecture == _GEMMA else None,
    )


def _windows(fields: _Fields, num_layers: int, context_length: int) -> tuple[int | None, ...]:
    window = fields.whole("attention.sliding_window", 0)
    kept = window if fields.architecture == _GEMMA and 0 < window < context_length else None
    return tuple(kept if one else None for one in _local_layers(num_layers))


def _local_layers(num_layers: int) -> tuple[bool, ...]:
    """Which layers of Gemma 3 see a window only: llama.cpp knows it, its files do not say it."""
    return tuple((layer + 1) % _PATTERN != 0 for layer in range(max(0, min(num_layers, 1 << 16))))


def _gemma(fields: _Fields, num_layers: int) -> GemmaConfig:
    """What llama.cpp takes for granted of the architecture; it has put the 1 into the norms."""
    for name in ("final_logit_softcapping", "attn_logit_softcapping"):
        if fields.real(name, 0.0):
            raise fields.error(f"{_GEMMA}.{name} is {fields.real(name)}: not supported")
    hidden_size = fields.whole("embedding_length")
    num_heads = max(1, fields.whole("attention.head_count"))
    head_dim = fields.whole("attention.key_length", hidden_size // num_heads)
    width = hidden_size // num_heads if num_layers == _LAYERS_OF_27B else head_dim
    return GemmaConfig(
        local_rope=Rope(theta=fields.real("rope.freq_base_swa", 10_000.0), scaling=None),
        is_local=_local_layers(num_layers),
        score_scale=max(1, width) ** -0.5,
        embedding_scale=max(1, hidden_size) ** 0.5,
        norm_offset=0.0,
    )


def _refuse_unbuilt(fields: _Fields, *, head_dim: int, context_length: int) -> None:
    # Before any tensor is read: the number of rope factors follows from it.
    if head_dim % 2 or not 0 < head_dim <= MAX_HEAD_DIM:
        raise fields.error(
            f"{fields.architecture}.attention.key_length is {head_dim}, "
            f"it must be even and at most {MAX_HEAD_DIM}"
        )
    if fields.whole("expert_count", 0):
        raise fields.error(f"{fields.architecture}.expert_count: experts are not supported")
    for name in ("rope.dimension_count", "attention.value_length"):
        value = fields.whole(name, head_dim)
        if value != head_dim:
            raise fields.error(
                f"{fields.architecture}.{name} is {value}: only the head's {head_dim} is supported"
            )
    window = fields.whole("attention.sliding_window", 0)
    if 0 < window < context_length and fields.architecture != _GEMMA:
        raise fields.error(
            f"{fields.architecture}.attention.sliding_window is {window}, below the context "
            f"of {context_length}: not supported from GGUF"
        )


def _rope_scaling(fields: _Fields, head_dim: int) -> RopeScaling | None:
    """As llama.cpp reads it: without a type a factor is linear, a factor of 0 or 1 is none."""
    key = f"{fields.architecture}.rope.scaling"
    attention_factor = fields.real("rope.scaling.attn_factor", 1.0)
    if attention_factor != 1:
        raise fields.error(f"{key}.attn_factor is {attention_factor}: not supported")
    kind = fields.find("rope.scaling.type")
    if kind not in (None, "none", "linear"):
        raise fields.error(f"{key}.type is {kind!r}, supported are none and linear")
    factor = _linear_factor(fields, is_needed=kind == "linear")
    if kind == "none" and factor is not None:
        raise fields.error(f"{key}.type is 'none' with a factor of {factor}: which one holds?")
    factors = fields.file.shape(_ROPE_FACTORS)
    if factors is None:
        return None if factor is None else LinearRope(factor=factor)
    if factor is not None:
        raise fields.error(
            f"tensor {_ROPE_FACTORS!r} has shape {factors} beside a factor of {factor}: "
            f"only one of them is supported"
        )
    if factors != (head_dim // 2,):
        raise fields.error(
            f"tensor {_ROPE_FACTORS!r} has shape {factors}, ({head_dim // 2},) is needed"
        )
    values = fields.file.read(_ROPE_FACTORS, rows=range(head_dim // 2), columns=None)
    return FactorRope(factors=tuple(values.tolist()))


def _linear_factor(fields: _Fields, *, is_needed: bool) -> float | None:
    """The factor under its name or its old one; None when it changes nothing."""
    old = fields.find("rope.scale_linear")
    default = None if old is None else fields.real("rope.scale_linear")
    if default is None and not is_needed:
        default = 1.0
    factor = fields.real("rope.scaling.factor", default)
    return None if factor in (0, 1) else factor
