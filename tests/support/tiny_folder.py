"""A Hugging Face folder of a tiny model with random weights that chats: quick to serve."""

import json
from pathlib import Path

import torch
import transformers

from tests.support.text_models import train_byte_level

TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def write_tiny_folder(path: Path, *, context: int = 1024) -> Path:
    """Write it and return its path."""
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=400,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=3,
        max_position_embeddings=context,
        eos_token_id=2,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    (path / "tokenizer.json").write_text(train_byte_level().to_str())
    special = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
    (path / "tokenizer_config.json").write_text(json.dumps(settings | special))
    return path
