"""The laws of lanehost.text.model_text."""

import json
import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from lanehost.errors import StartupFailed
from lanehost.job import ChatMessage, Role
from lanehost.text.model_text import NO_TEMPLATE, load_model_text
from tests.support.text_models import (
    CHATML,
    byte_level_fields,
    spm_fields,
    train_byte_level,
    write_folder,
    write_gguf,
)
from tests.support.tiny_gemma3 import TOKEN_ID, VOCAB_SIZE, write_tiny_gemma3

HELLO = (ChatMessage(role=Role.USER, content="hello"),)
RENDERED = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
NUM_TOKENS = len(byte_level_fields()["tokenizer.ggml.tokens"])
CONFIG = {"vocab_size": 400, "max_position_embeddings": 256, "eos_token_id": 2}


def gguf(tmp_path, rows=340, **changes):
    return write_gguf(tmp_path / "Small.Q8_0.gguf", byte_level_fields(**changes), rows=rows)


@pytest.mark.model
def test_the_embedded_model_is_known(embedded_text):
    assert embedded_text.name == "SmolLM2-135M-Instruct.Q4_1"
    assert (embedded_text.vocab_size, embedded_text.context_length) == (49152, 8192)
    assert embedded_text.eos_token_ids == {2}
    assert embedded_text.template is not None


def test_a_gguf_file_gives_the_text_side_of_its_model(tmp_path):
    text = load_model_text(gguf(tmp_path, eot_token_id=0))

    assert (text.name, text.context_length, text.vocab_size) == ("Small.Q8_0", 128, 340)
    assert text.eos_token_ids == {2, 0}
    assert text.template.render(HELLO) == RENDERED
    assert text.no_template_reason == ""
    assert text.tokenizer.vocab_size == NUM_TOKENS


def test_a_folder_gives_the_text_side_of_its_model(tmp_path):
    text = load_model_text(write_folder(tmp_path / "small"))

    assert (text.name, text.context_length, text.vocab_size) == ("small", 256, 400)
    assert text.eos_token_ids == {2}
    assert text.template.render(HELLO) == RENDERED
    assert text.tokenizer.decode(text.tokenizer.encode("the cat")) == "the cat"


def test_an_id_that_begins_and_ends_a_text_ends_a_reply(tmp_path):
    assert load_model_text(gguf(tmp_path, bos_token_id=2)).eos_token_ids == {2}


def test_without_an_embedding_the_stated_size_counts(tmp_path):
    path = gguf(tmp_path, rows=None, vocab_size=None)
    with pytest.raises(StartupFailed, match=r"field llama\.vocab_size is absent"):
        load_model_text(path)

    fields = byte_level_fields() | {"llama.vocab_size": -1}
    with pytest.raises(StartupFailed, match=r"llama\.vocab_size is -1, a count above 0 is needed"):
        load_model_text(write_gguf(tmp_path / "b.gguf", fields))

    fields = byte_level_fields() | {"llama.vocab_size": 350}
    assert load_model_text(write_gguf(tmp_path / "b.gguf", fields)).vocab_size == 350


@pytest.mark.parametrize(("eos", "ids"), [(3, {3}), ([1, 3], {1, 3}), (None, {2}), ([], set())])
def test_generation_config_has_the_word_on_eos(tmp_path, eos, ids):
    path = write_folder(tmp_path, generation_config_json={"eos_token_id": eos})

    assert load_model_text(path).eos_token_ids == ids


def test_a_model_without_eos_is_served_with_a_warning(tmp_path):
    path = write_folder(tmp_path, config_json={**CONFIG, "eos_token_id": None})

    with capture_logs() as logs:
        assert load_model_text(path).eos_token_ids == frozenset()

    assert [entry["event"] for entry in logs] == ["model_without_eos"]


@pytest.mark.parametrize(
    "files",
    [
        {"chat_template_jinja": "jinja", "chat_template_json": {"chat_template": "no"}},
        {"chat_template_json": {"chat_template": "jinja"}},
        {"tokenizer_config_json": {"chat_template": "jinja"}},
        {
            "tokenizer_config_json": {
                "chat_template": [
                    {"name": "tool_use", "template": "no"},
                    {"name": "default", "template": "jinja"},
                ]
            }
        },
    ],
)
def test_a_template_is_found_wherever_a_folder_may_have_it(tmp_path, files):
    text = load_model_text(write_folder(tmp_path, **files))

    assert text.template.render(HELLO) == "jinja"


def test_a_template_knows_bos_and_eos(tmp_path):
    source = "{{ bos_token }}|{{ eos_token }}"
    folder = write_folder(tmp_path / "hf", chat_template_jinja=source)
    plain = write_folder(tmp_path / "no", chat_template_jinja=source, tokenizer_config_json={})

    assert load_model_text(folder).template.render(HELLO) == "<|im_start|>|<|im_end|>"
    assert load_model_text(plain).template.render(HELLO) == "|"
    assert load_model_text(gguf(tmp_path, chat_template=source)).template.render(HELLO) == (
        "<|im_start|>|<|im_end|>"
    )
    bare = gguf(tmp_path, chat_template=source, bos_token_id=None, eos_token_id=None)
    assert load_model_text(bare).template.render(HELLO) == "|"


@pytest.mark.parametrize("config", [{}, {"chat_template": [{"name": "tool_use", "template": "x"}]}])
def test_a_model_without_a_template_says_so(tmp_path, config):
    folder = load_model_text(write_folder(tmp_path / "hf", tokenizer_config_json=config))
    file = load_model_text(gguf(tmp_path, chat_template=None))

    assert (folder.template, folder.no_template_reason) == (None, NO_TEMPLATE)
    assert (file.template, file.no_template_reason) == (None, NO_TEMPLATE)


def test_a_broken_template_does_not_keep_the_model_from_serving_text(tmp_path):
    with capture_logs() as logs:
        text = load_model_text(write_folder(tmp_path, chat_template_jinja=CHATML + "{% for %}"))

    assert text.template is None
    assert "the chat template does not compile, line 1" in text.no_template_reason
    assert text.tokenizer.encode("the")
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [
        ("chat_template_unusable", "warning")
    ]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"config_json": None}, r"config\.json is absent"),
        ({"config_json": CONFIG | {"vocab_size": None}}, r"config\.json: field vocab_size is None"),
        ({"config_json": CONFIG | {"vocab_size": True}}, "field vocab_size is True"),
        (
            {"config_json": CONFIG | {"max_position_embeddings": 0}},
            "field max_position_embeddings is 0, a count above 0",
        ),
        (
            {"config_json": CONFIG | {"eos_token_id": 400}},
            r"config\.json: field eos_token_id has 400, ids from 0 to 399 are allowed",
        ),
        (
            {"generation_config_json": {"eos_token_id": ["x"]}},
            r"generation_config\.json: field eos_token_id has 'x'",
        ),
        ({"chat_template_json": {"chat_template": 3}}, r"chat_template\.json: .* is a int"),
    ],
)
def test_what_is_wrong_with_a_folder_is_named(tmp_path, files, says):
    with pytest.raises(StartupFailed, match=says):
        load_model_text(write_folder(tmp_path, **files))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"eos_token_id": 4000},
            f"tokenizer.ggml.eos_token_id is 4000, outside .* of {NUM_TOKENS} tokens",
        ),
        (
            {"bos_token_id": 335},
            f"tokenizer.ggml.bos_token_id is 335, outside .* of {NUM_TOKENS} tokens",
        ),
        ({"rows": 2}, "tokenizer.ggml.eos_token_id is 2, outside the vocabulary of 2 tokens"),
        ({"eos_token_id": -1}, "tokenizer.ggml.eos_token_id is -1, outside the vocabulary"),
        ({"bos_token_id": -1_000_000}, "tokenizer.ggml.bos_token_id is -1000000, outside"),
        ({"context_length": 0}, "llama.context_length is 0, a count above 0 is needed"),
        ({"context_length": -5}, "llama.context_length is -5, a count above 0 is needed"),
        ({"context_length": None}, "field llama.context_length is absent"),
        ({"tokens": None}, "field tokenizer.ggml.tokens is absent"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path, changes, says):
    with pytest.raises(StartupFailed, match=says):
        load_model_text(gguf(tmp_path, **changes))


def test_a_tokenizer_that_panics_on_plain_text_does_not_start(tmp_path):
    pipeline = json.loads(train_byte_level().to_str())
    pipeline["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": r"(\w+\s?)+(\w+\s?)+$x"},
        "behavior": "Isolated",
        "invert": False,
    }

    with pytest.raises(StartupFailed, match="small: its tokenizer fails on plain text"):
        load_model_text(write_folder(tmp_path / "small", tokenizer_json=pipeline))


def test_a_path_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StartupFailed, match="gone does not exist; name a GGUF file or a Hugging"):
        load_model_text(tmp_path / "gone")


def test_neither_torch_nor_transformers_is_loaded(tmp_path):
    path = write_folder(tmp_path)
    program = (
        "import sys; from pathlib import Path; "
        "from lanehost.text.model_text import load_model_text; "
        f"load_model_text(Path({str(path)!r})); "
        "sys.exit(sorted({'torch', 'transformers'} & set(sys.modules)) != [])"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_gemma_with_eyes_is_read_with_its_ends_and_template(tmp_path):
    text = load_model_text(write_tiny_gemma3(tmp_path / "gemma"))
    assert (text.vocab_size, text.context_length) == (VOCAB_SIZE, 1024)
    assert (text.images.token_id, text.images.num_tokens) == (TOKEN_ID["<image_soft_token>"], 4)
    assert text.eos_token_ids == {TOKEN_ID["<eos>"], TOKEN_ID["<end_of_turn>"]}
    rendered = text.template.render((ChatMessage(role=Role.USER, content="hi"),))
    assert rendered == "<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n"
    ids = text.tokenizer.encode_rendered(rendered)
    assert ids[:2] == [TOKEN_ID["<bos>"], TOKEN_ID["<start_of_turn>"]]


@pytest.mark.parametrize(("word", "is_end"), [("<end_of_turn>", True), ("<other>", False)])
def test_a_gemma_file_ends_a_turn_though_it_names_only_its_eos(tmp_path, word, is_end):
    fields = spm_fields()
    fields["gemma3.context_length"] = fields.pop("llama.context_length")
    tokens = fields["tokenizer.ggml.tokens"]
    tokens[-1] = word
    path = write_gguf(tmp_path / "gemma.gguf", fields, rows=340, architecture="gemma3")
    turn_end = {len(tokens) - 1} if is_end else set()
    assert load_model_text(path).eos_token_ids == {2} | turn_end
