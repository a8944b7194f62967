"""Tiny random checkpoints of each family, written with `transformers` or `gguf`."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize

VOCAB_SIZE = 301
CONTEXT_LENGTH = 1024
HEAD_DIM = 16
NUM_HEADS, NUM_KV_HEADS = 6, 3  # the cut is uneven: 2 + 1 groups
HIDDEN_SIZE = 96
INTERMEDIATE_SIZE = 168  # not a multiple of 16 on either shard

_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": INTERMEDIATE_SIZE,
    "num_hidden_layers": 2,
    "num_attention_heads": NUM_HEADS,
    "num_key_value_heads": NUM_KV_HEADS,
    "max_position_embeddings": CONTEXT_LENGTH,
    "initializer_range": 0.2,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_LINEAR = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}

# name → config of transformers
FAMILIES: dict[str, Any] = {
    "llama": lambda: transformers.LlamaConfig(**_SIZES),
    "llama_deep": lambda: transformers.LlamaConfig(**_SIZES | {"num_hidden_layers": 5}),
    # 224 columns are cut into 112 + 112, inside a group of 32
    "llama_grouped": lambda: transformers.LlamaConfig(**_SIZES | {"intermediate_size": 224}),
    "qwen3_grouped": lambda: transformers.Qwen3Config(
        **_SIZES | {"intermediate_size": 224}, head_dim=32
    ),
    "llama_one_kv": lambda: transformers.LlamaConfig(**_SIZES | {"num_key_value_heads": 1}),
    "qwen3_one_kv": lambda: transformers.Qwen3Config(
        **_SIZES | {"intermediate_size": 224, "num_key_value_heads": 1}, head_dim=32
    ),
    "llama_tied": lambda: transformers.LlamaConfig(**_SIZES, tie_word_embeddings=True),
    "llama_biased": lambda: transformers.LlamaConfig(**_SIZES, attention_bias=True, mlp_bias=True),
    "llama_biased_grouped": lambda: transformers.LlamaConfig(
        **_SIZES | {"intermediate_size": 224}, attention_bias=True, mlp_bias=True
    ),
    "llama3_rope": lambda: transformers.LlamaConfig(**_SIZES, rope_parameters=_LLAMA3),
    "linear_rope": lambda: transformers.LlamaConfig(**_SIZES, rope_parameters=_LINEAR),
    "mistral": lambda: transformers.MistralConfig(**_SIZES, sliding_window=None),
    "mistral_window": lambda: transformers.MistralConfig(**_SIZES, sliding_window=9),
    "qwen2": lambda: transformers.Qwen2Config(**_SIZES),
    "qwen2_grouped": lambda: transformers.Qwen2Config(**_SIZES | {"intermediate_size": 224}),
    "qwen2_window": lambda: transformers.Qwen2Config(
        **_SIZES, use_sliding_window=True, sliding_window=9, max_window_layers=1
    ),
    "qwen3": lambda: transformers.Qwen3Config(**_SIZES, head_dim=32),
}


def make_reference(family: str, seed: int = 7) -> Any:
    """A random model of the family, in float32, with biases and norms that are not trivial."""
    torch.manual_seed(seed)
    config = FAMILIES[family]()
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.2)
            elif "norm" in name:
                parameter.uniform_(0.5, 1.5)
    return model


def write_hf_checkpoint(folder: Path, family: str, *, max_shard_size: str = "1GB") -> Any:
    """Write config.json and safetensors; returns the reference model."""
    model = make_reference(family)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return model


def write_repeating_checkpoint(folder: Path, *, layers: float = 0.0) -> None:
    """Write a model that likes to say its last token again; `layers` scales what layers add."""
    model = write_hf_checkpoint(folder, "llama_tied")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(layers)
            layer.mlp.down_proj.weight.mul_(layers)
    model.save_pretrained(folder)


def write_gguf(
    path: Path,
    kind: GGMLQuantizationType,
    *,
    architecture: str = "llama",
    family: str = "llama_grouped",
) -> Any:
    """Write a GGUF whose matrices have the type `kind`; returns a reference of its very values.

    The reference's weights are what the file's values dequantise to.
    """
    model = make_reference(family)
    writer = start_gguf(path, architecture, model.config)
    if model.config.rope_parameters["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(model.config))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            stored = kind if parameter.dim() == 2 else GGMLQuantizationType.F32
            is_interleaved = architecture == "llama" and name.endswith(_INTERLEAVED)
            values = parameter.numpy()
            raw = quantize(interleave(values) if is_interleaved else values, stored)
            writer.add_tensor(to_gguf_name(name), raw, raw_dtype=stored)
            back = raw.astype(np.float32) if stored in _PLAIN else dequantize(raw, stored)
            back = join_halves(back) if is_interleaved else back
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(back)).view(parameter.shape))
    finish_gguf(writer)
    return model


_PLAIN = (GGMLQuantizationType.F32, GGMLQuantizationType.F16)
_INTERLEAVED = ("q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias")


def start_gguf(path: Path, architecture: str, config: Any) -> gguf.GGUFWriter:
    """A writer with all fields of the config."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_array("tokenizer.ggml.tokens", [f"t{number}" for number in range(VOCAB_SIZE)])
    return writer


def llama3_factors(config: Any) -> Any:
    """What llama.cpp's converter writes for such a config: a divisor for each frequency."""
    rope, factors = config.rope_parameters, []
    context = rope["original_max_position_embeddings"]
    low_wavelength = context / rope["low_freq_factor"]
    high_wavelength = context / rope["high_freq_factor"]
    for index in range(0, HEAD_DIM, 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (index / HEAD_DIM)
        if wavelength < high_wavelength:
            factors.append(1.0)
        elif wavelength > low_wavelength:
            factors.append(rope["factor"])
        else:
            smooth = (context / wavelength - rope["low_freq_factor"]) / (
                rope["high_freq_factor"] - rope["low_freq_factor"]
            )
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


def finish_gguf(writer: gguf.GGUFWriter) -> None:
    """Write the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def interleave(values: Any, head_dim: int = HEAD_DIM) -> Any:
    """Order the rows of q or k as llama.cpp does: the halves of a head by turns."""
    heads = values.reshape(-1, 2, head_dim // 2, *values.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(1, 2).reshape(values.shape))


def join_halves(values: Any, head_dim: int = HEAD_DIM) -> Any:
    """Undo `interleave`, written in another way than the loader does."""
    order = []
    for head in range(values.shape[0] // head_dim):
        order += [head * head_dim + index for index in range(0, head_dim, 2)]
        order += [head * head_dim + index for index in range(1, head_dim, 2)]
    return values[order]


def to_gguf_name(name: str) -> str:
    """The name of a Hugging Face tensor in a GGUF."""
    table = dict(_gguf_parts())
    parts = name.removeprefix("model.").split(".")
    if parts[0] == "layers":
        return f"blk.{parts[1]}.{table['.'.join(parts[2:-1])]}.{parts[-1]}"
    return f"{table[parts[0]]}.{parts[-1]}"


def _gguf_parts() -> Iterator[tuple[str, str]]:
    yield from (("embed_tokens", "token_embd"), ("norm", "output_norm"), ("lm_head", "output"))
    yield from (("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"))
    for part in ("q", "k", "v"):
        yield f"self_attn.{part}_proj", f"attn_{part}"
    yield "self_attn.o_proj", "attn_output"
    yield from (("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm"))
    for part in ("gate", "up", "down"):
        yield f"mlp.{part}_proj", f"ffn_{part}"
