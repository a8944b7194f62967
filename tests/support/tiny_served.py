"""A tiny random model with a tokenizer, as `lanehost serve` takes it."""

import json
from pathlib import Path

import torch
import transformers

from tests.support.text_models import train_byte_level


def write_tiny_folder(path: Path) -> Path:
    """Write a Hugging Face folder of random weights."""
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=400,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=3,
        max_position_embeddings=256,
        eos_token_id=2,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    (path / "tokenizer.json").write_text(train_byte_level().to_str())
    special = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"} | special
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path
