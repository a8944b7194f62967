"""A tiny Gemma 3 with random weights, that chats and takes images: a folder, quick to serve.

Its image is 28 pixels square: 4 x 4 patches of 7, pooled to 4 rows. One KV head, so that two
ranks share it; two kinds of layers, with a window that is shorter than most prompts.
"""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from tests.support.text_models import CORPUS

SPECIAL = (
    "<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>",
    "<end_of_image>", "<image_soft_token>",
)  # fmt: skip
TOKEN_ID = {token: token_id for token_id, token in enumerate(SPECIAL)}
VOCAB_SIZE = 336
IMAGE_SIZE, IMAGE_TOKENS = 28, 4

# As the folders of the released models have it: most fields are left to their defaults.
RELEASED: dict[str, Any] = {
    "model_type": "gemma3",
    "mm_tokens_per_image": 256,
    "image_token_index": 262_144,
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10_240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "vision_config": {
        "hidden_size": 1152,
        "image_size": 896,
        "intermediate_size": 4304,
        "model_type": "siglip_vision_model",
        "num_attention_heads": 16,
        "num_hidden_layers": 27,
        "patch_size": 14,
        "vision_use_head": False,
    },
}

_TEXT: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 96,
    "intermediate_size": 104,  # not a multiple of 16 on either shard
    "num_hidden_layers": 6,
    "num_attention_heads": 3,  # 2 + 1
    "num_key_value_heads": 1,
    "head_dim": 16,
    "query_pre_attn_scalar": 24,
    "max_position_embeddings": 1024,
    "sliding_window": 24,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "initializer_range": 0.2,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
    },
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
_VISION: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": IMAGE_SIZE,
    "patch_size": 7,
    "vision_use_head": False,
}
_PREPROCESSOR = {
    "do_convert_rgb": None,
    "do_normalize": True,
    "do_pan_and_scan": None,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_processor_type": "Gemma3ImageProcessor",
    "image_seq_length": IMAGE_TOKENS,
    "image_std": [0.5, 0.5, 0.5],
    "processor_class": "Gemma3Processor",
    "resample": 2,
    "rescale_factor": 1 / 255,
    "size": {"height": IMAGE_SIZE, "width": IMAGE_SIZE},
}
TEMPLATE = (
    "{{ bos_token }}"
    "{%- if messages[0]['role'] == 'system' -%}"
    "{%- if messages[0]['content'] is string -%}"
    "{%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}"
    "{%- else -%}"
    "{%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}"
    "{%- endif -%}"
    "{%- set loop_messages = messages[1:] -%}"
    "{%- else -%}"
    "{%- set first_user_prefix = '' -%}{%- set loop_messages = messages -%}"
    "{%- endif -%}"
    "{%- for message in loop_messages -%}"
    "{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{%- endif -%}"
    "{%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}"
    "{{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else '') }}"
    "{%- if message['content'] is string -%}"
    "{{ message['content'] | trim }}"
    "{%- elif message['content'] is iterable -%}"
    "{%- for item in message['content'] -%}"
    "{%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}"
    "{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- else -%}"
    "{{ raise_exception('Invalid content type') }}"
    "{%- endif -%}"
    "{{ '<end_of_turn>\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}"
)


def make_gemma3(*, seed: int = 7, eyes: dict[str, Any] | None = None, **changes: Any) -> Any:
    """A random model with eyes, in float32.

    `changes` are of its text's config, `eyes` of its tower's, and the number of `tokens`.
    """
    text, vision = _TEXT | changes, _VISION | (eyes or {})
    config = transformers.Gemma3Config(
        text_config=text,
        mm_tokens_per_image=vision.pop("tokens", IMAGE_TOKENS),
        vision_config=vision,
        boi_token_index=TOKEN_ID["<start_of_image>"],
        eoi_token_index=TOKEN_ID["<end_of_image>"],
        image_token_index=TOKEN_ID["<image_soft_token>"],
    )
    return _make(transformers.Gemma3ForConditionalGeneration, config, seed)


def make_gemma3_text(*, seed: int = 7, **changes: Any) -> Any:
    """A random model without eyes, in float32; `changes` are of its config."""
    config = transformers.Gemma3TextConfig(**_TEXT | changes)
    return _make(transformers.Gemma3ForCausalLM, config, seed)


def _make(kind: Any, config: Any, seed: int) -> Any:
    torch.manual_seed(seed)
    config._attn_implementation = "eager"
    model = kind(config).to(torch.float32).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name and parameter.dim() == 1:
                # One is added to what the text's norms hold, but not to a layer norm's.
                low, high = (0.5, 1.5) if "vision" in name and "weight" in name else (-0.5, 0.5)
                parameter.uniform_(low, high)
            elif name.endswith("bias") or "vision" in name or "projector" in name:
                parameter.normal_(0, 0.2)
    return model


def write_tiny_gemma3(path: Path, *, has_images: bool = True, **changes: Any) -> Path:
    """Write a whole folder and return its path; `changes` are of the text's config."""
    model = make_gemma3(**changes) if has_images else make_gemma3_text(**changes)
    model.save_pretrained(path)
    _train_tokenizer().save(str(path / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
        "image_token": "<image_soft_token>",
        "chat_template": TEMPLATE,
    }
    ends = [TOKEN_ID["<eos>"], TOKEN_ID["<end_of_turn>"]]
    files: dict[str, Any] = {
        "tokenizer_config.json": settings,
        "generation_config.json": {"bos_token_id": TOKEN_ID["<bos>"], "eos_token_id": ends},
    }
    if has_images:
        files["preprocessor_config.json"] = _PREPROCESSOR
        files["processor_config.json"] = {
            "image_seq_length": IMAGE_TOKENS,
            "processor_class": "Gemma3Processor",
        }
    for name, content in files.items():
        (path / name).write_text(json.dumps(content))
    return path


def _train_tokenizer() -> Tokenizer:
    """Bytes and a few merges; a text begins with <bos>."""
    pipeline = Tokenizer(models.BPE(unk_token="<unk>"))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - 4,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pipeline.train_from_iterator(CORPUS * 4, trainer)
    pipeline.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", TOKEN_ID["<bos>"])]
    )
    return pipeline
