"""The laws of lanehost.text.hf_folder."""

import json

import pytest

from lanehost.errors import StartupFailed
from lanehost.text.hf_folder import HfFolder, text_config


def test_files_are_read_by_name(tmp_path):
    (tmp_path / "a.json").write_text('{"é": 1}', encoding="utf-8")
    folder = HfFolder(tmp_path)

    assert folder.need_text("a.json") == '{"é": 1}'
    assert folder.fields("a.json") == folder.need_fields("a.json") == {"é": 1}


def test_an_absent_file_has_no_text_and_no_fields(tmp_path):
    assert HfFolder(tmp_path).text("a.json") is None
    assert HfFolder(tmp_path).fields("a.json") == {}


def test_an_absent_file_that_is_needed_is_named(tmp_path):
    with pytest.raises(StartupFailed, match=r"a\.json is absent; a model folder needs config"):
        HfFolder(tmp_path).need_fields("a.json")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff{}", "cannot be read"),
        (b"{", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b"[]", "holds no JSON object"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, content, says):
    (tmp_path / "a.json").write_bytes(content)

    with pytest.raises(StartupFailed, match=rf"a\.json {says}"):
        HfFolder(tmp_path).fields("a.json")


def test_a_folder_in_place_of_a_file_is_named(tmp_path):
    (tmp_path / "a.json").mkdir()

    with pytest.raises(StartupFailed, match=r"a\.json cannot be read"):
        HfFolder(tmp_path).text("a.json")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model_type": "llama", "vocab_size": 5}, {"vocab_size": 5}),
        ({"model_type": "gemma3_text"}, {"vocab_size": 262_208}),
        ({"model_type": "gemma3_text", "vocab_size": 5}, {"vocab_size": 5}),
        (
            {"model_type": "gemma3", "vocab_size": 7, "text_config": {"vocab_size": 5}},
            {"vocab_size": 5, "max_position_embeddings": 131_072},
        ),
        ({"model_type": "gemma3", "text_config": {}}, {"vocab_size": 262_208}),
        (
            {"model_type": "gemma3", "eos_token_id": [1, 106], "text_config": {"eos_token_id": 1}},
            {"eos_token_id": [1, 106]},
        ),
    ],
)
def test_the_text_of_a_model_with_eyes_has_an_object_of_its_own(tmp_path, fields, expected):
    (tmp_path / "config.json").write_text(json.dumps(fields))
    found = text_config(HfFolder(tmp_path))
    assert {name: found[name] for name in expected} == expected


def test_a_model_with_eyes_and_no_text_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3"}))
    with pytest.raises(StartupFailed, match="field text_config is None, an object is needed"):
        text_config(HfFolder(tmp_path))
