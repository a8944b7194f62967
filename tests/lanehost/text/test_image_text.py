"""How a folder says that its model takes images."""

import json

import pytest

from lanehost.text.hf_tokenizer import tokenizer_from_folder
from lanehost.text.image_text import NO_IMAGES, read_image_text
from tests.support.image_folder import CONFIG, write_image_folder


@pytest.fixture
def folder(tmp_path):
    return write_image_folder(tmp_path)


def read(folder, **changes):
    return read_image_text(folder, CONFIG | changes, tokenizer_from_folder(folder))


def test_words_and_tokens_are_those_of_the_config(folder):
    images = read(folder).images
    assert images.words == ("<start_of_image>", "<image_soft_token>", "<end_of_image>")
    assert (images.num_tokens, images.token_id, images.processor.width) == (4, 8, 28)
    soft = "<image_soft_token>" * 4
    assert images.block == f"\n\n<start_of_image>{soft}<end_of_image>\n\n"


def test_a_newer_folder_has_the_processor_within_one_file(folder):
    old = folder.path / "preprocessor_config.json"
    whole = {"image_processor": json.loads(old.read_text()), "image_seq_length": 4}
    expected = read(folder)
    old.unlink()
    (folder.path / "processor_config.json").write_text(json.dumps(whole))
    assert read(folder) == expected


@pytest.mark.parametrize("change", [{"model_type": "llama"}, {"vision_config": None}])
def test_a_model_without_an_encoder_takes_none(folder, change):
    found = read(folder, **change)
    assert (found.images, found.reason) == (None, NO_IMAGES)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mm_tokens_per_image": 0}, "mm_tokens_per_image is 0"),
        ({"image_token_index": "8"}, "image_token_index is '8'"),
        ({"boi_token_index": 40}, "boi_token_index is 40, which is no special token"),
        ({"eoi_token_index": 100_000}, "eoi_token_index is 100000, which is no special token"),
    ],
)
def test_a_config_that_cannot_be_used_leaves_a_model_of_text_with_the_reason(folder, change, words):
    found = read(folder, **change)
    assert found.images is None
    assert found.reason.startswith(f"{NO_IMAGES}: ")
    assert words in found.reason


def test_settings_that_are_not_built_leave_a_model_of_text_with_file_and_reason(folder):
    path = folder.path / "preprocessor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "do_pan_and_scan": True}))
    assert f"{path}: do_pan_and_scan is True, only False is built" in read(folder).reason


def test_a_folder_without_the_settings_says_which_file_is_absent(folder):
    (folder.path / "preprocessor_config.json").unlink()
    assert "has no preprocessor_config.json" in read(folder).reason
    (folder.path / "processor_config.json").write_text('{"image_processor": [1]}')
    assert "has no preprocessor_config.json" in read(folder).reason
