"""The tiny Gemma 3 as a GGUF, as llama.cpp's converter writes it."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from tests.support.tiny_checkpoints import finish_gguf, start_gguf
from tests.support.tiny_gemma3 import make_gemma3_text

# Rotary positions and layers that a GGUF cannot say otherwise.
_CHANGES: dict[str, Any] = {"layer_types": None, "rope_parameters": None, "intermediate_size": 224}
_CHANGES |= {"head_dim": 32, "query_pre_attn_scalar": 32}
_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gemma_gguf(path: Path, kind: GGMLQuantizationType) -> Any:
    """Write it with matrices of the type `kind`; returns a reference of the file's very values."""
    model = make_gemma3_text(**_CHANGES)
    writer = start_gguf(path, "gemma3", _with_one_rope(model.config))
    writer.add_sliding_window(model.config.sliding_window)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = parameter.numpy()
            if parameter.dim() == 1:  # a norm, to which the converter adds its 1
                writer.add_tensor(_to_gguf(name), values + np.float32(1))
                continue
            raw = quantize(values, kind)
            writer.add_tensor(_to_gguf(name), raw, raw_dtype=kind)
            if kind is not GGMLQuantizationType.F32:
                parameter.copy_(torch.from_numpy(dequantize(raw, kind)).view(parameter.shape))
    finish_gguf(writer)
    return model


def _with_one_rope(config: Any) -> Any:
    """The config with the one base of rotary positions that `start_gguf` writes."""

    class OneRope:
        rope_parameters = config.rope_parameters["full_attention"]

        def __getattr__(self, name: str) -> Any:
            return getattr(config, name)

    return OneRope()


def _to_gguf(name: str) -> str:
    parts = name.removeprefix("model.").split(".")
    if parts[0] == "layers":
        return f"blk.{parts[1]}.{_NAMES['.'.join(parts[2:-1])]}.weight"
    return {"embed_tokens": "token_embd", "norm": "output_norm"}[parts[0]] + ".weight"
