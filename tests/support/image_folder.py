"""The text side of a tiny Gemma 3: a folder without weights, quick to write."""

import json
from pathlib import Path
from typing import Any

from lanehost.text.chat_template import ChatTemplate
from lanehost.text.hf_folder import HfFolder
from lanehost.text.hf_tokenizer import special_token, tokenizer_from_folder
from tests.support import tiny_gemma3 as tiny

CONFIG: dict[str, Any] = {
    "model_type": "gemma3",
    "boi_token_index": tiny.TOKEN_ID["<start_of_image>"],
    "eoi_token_index": tiny.TOKEN_ID["<end_of_image>"],
    "image_token_index": tiny.TOKEN_ID["<image_soft_token>"],
    "mm_tokens_per_image": tiny.IMAGE_TOKENS,
    "text_config": {"vocab_size": tiny.VOCAB_SIZE, "max_position_embeddings": 1024},
    "vision_config": {},
}


def write_image_folder(path: Path, **changes: Any) -> HfFolder:
    """Write it; `changes` are of config.json."""
    path.mkdir(parents=True, exist_ok=True)
    tiny._train_tokenizer().save(str(path / "tokenizer.json"))
    files = {
        "config.json": CONFIG | changes,
        "preprocessor_config.json": tiny._PREPROCESSOR,
        "tokenizer_config.json": {"bos_token": "<bos>", "eos_token": "<eos>"},
    }
    for name, content in files.items():
        (path / name).write_text(json.dumps(content))
    return HfFolder(path)


def template_of(folder: HfFolder) -> ChatTemplate:
    bos, eos = (special_token(folder, name) or "" for name in ("bos", "eos"))
    return ChatTemplate(tiny.TEMPLATE, bos_token=bos, eos_token=eos)


__all__ = ["CONFIG", "template_of", "tokenizer_from_folder", "write_image_folder"]
