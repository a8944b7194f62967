"""Small model files, as the text room reads them: GGUF metadata and Hugging Face folders."""

import json

import numpy as np
from gguf import GGUFWriter, TokenType
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CORPUS = ["the cat sat on the mat and the hat", "숲과 하늘 그리고 바다", "🌱🌱 sun ☀️", "x = 12345"]
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def write_gguf(path, fields, *, rows=None, architecture="llama"):
    """Write a GGUF file of these fields; `rows` gives it an embedding of so many rows."""
    writer = GGUFWriter(path, architecture)
    adders = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32}
    for key, value in fields.items():
        is_signed = type(value) is int and value < 0
        add = writer.add_int32 if is_signed else adders.get(type(value), writer.add_array)
        add(key, value)
    if rows is not None:
        writer.add_tensor("token_embd.weight", np.zeros((rows, 4), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


# Pieces and their scores; each has one way to be merged, so that SentencePiece's choice among
# equal scores never matters.
SPM_SCORES = {
    **dict.fromkeys(["▁", "h", "e", "l", "o", "t", "가", "나", "🌱", "\n"], -100.0),
    "he": -1.0,
    "ll": -2.0,
    "lo": -2.5,
    "▁t": -3.0,
    "hell": -4.0,
    "hello": -5.0,
    "▁the": -6.0,
    "가나": -7.0,
    "▁hello": -8.0,
}
SPM_SPECIAL = {"<unk>": TokenType.UNKNOWN, "<s>": TokenType.CONTROL, "</s>": TokenType.CONTROL}
SPM_ADDED = {"<tool>": TokenType.USER_DEFINED}


def spm_fields(**changes):
    """The fields of a small SentencePiece tokenizer with byte fallback."""
    token_bytes = {f"<0x{byte:02X}>": TokenType.BYTE for byte in range(256)}
    types = {
        **SPM_SPECIAL,
        **token_bytes,
        **dict.fromkeys(SPM_SCORES, TokenType.NORMAL),
        **SPM_ADDED,
    }
    fields = {
        "llama.context_length": 128,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": list(types),
        "tokenizer.ggml.token_type": [int(token_type) for token_type in types.values()],
        "tokenizer.ggml.scores": [SPM_SCORES.get(token, 0.0) for token in types],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    return _changed(fields, changes)


def byte_level_fields(**changes):
    """The fields of a small byte-level tokenizer, trained here."""
    trained = json.loads(train_byte_level().to_str())
    tokens = sorted(trained["model"]["vocab"], key=trained["model"]["vocab"].get)
    control = {token["content"] for token in trained["added_tokens"]}
    fields = {
        "llama.context_length": 128,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [
            int(TokenType.CONTROL if token in control else TokenType.NORMAL) for token in tokens
        ],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in trained["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": CHATML,
    }
    return _changed(fields, changes)


def train_byte_level():
    """Train a small byte-level tokenizer with three special tokens."""
    pipeline = Tokenizer(models.BPE())
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pipeline.train_from_iterator(CORPUS * 4, trainer)
    return pipeline


def write_folder(path, pipeline=None, **files):
    """Write a Hugging Face folder without weights; a file is a dict, a text, or None for none.

    The names of the files are given with `_` for `.` before their ending.
    """
    pipeline = train_byte_level() if pipeline is None else pipeline
    contents = {
        "config_json": {"vocab_size": 400, "max_position_embeddings": 256, "eos_token_id": 2},
        "tokenizer_json": pipeline.to_str(),
        "tokenizer_config_json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|im_start|>",
            "eos_token": {"content": "<|im_end|>", "__type": "AddedToken"},
            "chat_template": CHATML,
        },
        **files,
    }
    path.mkdir(exist_ok=True)
    for name, content in contents.items():
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            (path / ".".join(name.rsplit("_", 1))).write_text(text, encoding="utf-8")
    return path


def _changed(fields, changes):
    """Change fields by the last part of their name; None leaves one out."""
    full_names = {name.rsplit(".", 1)[-1]: name for name in fields}
    for short, value in changes.items():
        fields[full_names.get(short, f"tokenizer.ggml.{short}")] = value
    return {name: value for name, value in fields.items() if value is not None}
