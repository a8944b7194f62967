"""A tiny Hugging Face folder that can be served: random weights, a tokenizer, a template."""

import json
from pathlib import Path

import torch
import transformers

from tests.support.text_models import CHATML, train_byte_level


def write_served_folder(path: Path, *, template: str = CHATML, seed: int = 3) -> None:
    """Write it; another seed gives other weights."""
    torch.manual_seed(seed)
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
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (path / "tokenizer_config.json").write_text(json.dumps(settings | special))
