import json

import pytest

from ranks.errors import BadCheckpoint
from ranks.weights.json_fields import JsonFields
from ranks.weights.model_config import VisionConfig
from ranks.weights.vision_config import read_vision_config
from tests.support.tiny_gemma3 import RELEASED


def read(folder, *, config=None, vision=None, **files):
    values = RELEASED | (config or {})
    values["vision_config"] = RELEASED["vision_config"] | (vision or {})
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return read_vision_config(JsonFields(folder / "config.json", values))


def test_a_released_folder_is_read_with_the_processor_of_its_class(tmp_path):
    assert read(tmp_path) == VisionConfig(
        hidden_size=1152,
        intermediate_size=4304,
        num_layers=27,
        num_heads=16,
        norm_eps=1e-6,
        image_size=896,
        patch_size=14,
        tokens_per_side=16,
        image_token_id=262_144,
        rescale=1 / 255,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
    )


SETTINGS = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6], "rescale_factor": 0.25}


@pytest.mark.parametrize(
    "files",
    [
        {"preprocessor_config": SETTINGS},
        {"processor_config": {"image_processor": SETTINGS}},
        {"preprocessor_config": SETTINGS, "processor_config": {"image_processor": {}}},
    ],
)
def test_the_processor_is_read_from_its_own_file_or_from_within_another(tmp_path, files):
    config = read(tmp_path, **files)
    assert (config.mean, config.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert config.rescale == 0.25


def test_what_a_processor_leaves_out_changes_nothing(tmp_path):
    settings = SETTINGS | {"do_rescale": False, "do_normalize": False}
    config = read(tmp_path, preprocessor_config=settings)
    assert (config.rescale, config.mean, config.std) == (1.0, (0.0,) * 3, (1.0,) * 3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vision": {"model_type": "clip_vision_model"}}, "model_type is 'clip_vision_model'"),
        ({"vision": {"hidden_act": "gelu"}}, "hidden_act is 'gelu'"),
        ({"vision": {"num_channels": 1}}, "num_channels is 1"),
        ({"vision": {"image_size": 900}}, "image_size is 900, no multiple of 14"),
        ({"vision": {"num_attention_heads": 7}}, "hidden_size is 1152, no multiple of 7"),
        ({"vision": {"layer_norm_eps": -1e-6}}, "norm_eps is -1e-06"),
        ({"vision": {"num_hidden_layers": 0}}, "num_layers is 0"),
        ({"vision": {"patch_size": 1 << 20}}, "patch_size is 1048576"),
        ({"config": {"mm_tokens_per_image": 255}}, "mm_tokens_per_image is 255, a square"),
        ({"config": {"mm_tokens_per_image": 225}}, "patches a side is 64, no multiple of 15"),
        ({"config": {"image_token_index": -1}}, "image_token_id is -1"),
        ({"config": {"image_token_index": None}}, "image_token_index is None"),
        ({"preprocessor_config": {"image_mean": 0.5}}, "image_mean is 0.5, a list"),
        ({"preprocessor_config": {"image_mean": ["a"]}}, "image_mean\\[0\\] is 'a'"),
        ({"preprocessor_config": {"image_std": [0.5]}}, r"std \(0.5,\)"),
        ({"preprocessor_config": {"image_std": [0.5, 0, 0.5]}}, r"std \(0.5, 0.0, 0.5\)"),
    ],
)
def test_what_is_not_built_is_refused_by_name(tmp_path, changes, words):
    with pytest.raises(BadCheckpoint, match=words):
        read(tmp_path, **changes)


def test_how_a_pixel_becomes_a_number_is_part_of_the_digest(tmp_path):
    assert read(tmp_path) != read(tmp_path, preprocessor_config=SETTINGS)
