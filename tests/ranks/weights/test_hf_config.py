import json

import pytest

from ranks.errors import BadCheckpoint
from ranks.weights.hf_config import read_hf_config, read_json
from ranks.weights.model_config import LinearRope, Llama3Rope
from tests.support.tiny_checkpoints import FAMILIES

OLD_LLAMA = {
    "model_type": "llama",
    "vocab_size": 301,
    "hidden_size": 96,
    "intermediate_size": 168,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "max_position_embeddings": 1024,
}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


def read(folder, values):
    path = folder / "config.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return read_hf_config(path)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_transformers_writes_is_read(tmp_path, family):
    reference = FAMILIES[family]()
    reference.save_pretrained(tmp_path)
    config = read_hf_config(tmp_path / "config.json")
    assert config.family == reference.model_type
    assert config.num_kv_heads == 3
    assert config.head_dim == (32 if family.startswith("qwen3") else 16)
    assert config.is_tied == (family == "llama_tied")
    assert config.has_qkv_bias == (family in ("llama_biased", "qwen2", "qwen2_window"))
    assert config.has_output_bias == config.has_mlp_bias == (family == "llama_biased")
    windows = {"mistral_window": (9, 9), "qwen2_window": (None, 9)}
    assert config.layer_windows == windows.get(family, (None, None))


def test_an_old_config_has_the_defaults_of_its_class(tmp_path):
    config = read(tmp_path, OLD_LLAMA)
    assert config.num_kv_heads == 6
    assert config.head_dim == 16
    assert config.norm_eps == 1e-6
    assert config.rope_theta == 10_000.0
    assert config.rope_scaling is None
    assert not config.is_tied


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_rope_is_read_from_old_and_new_configs(tmp_path, key):
    config = read(tmp_path, OLD_LLAMA | {"rope_theta": 5e5, key: LLAMA3})
    assert config.rope_theta == 5e5
    assert config.rope_scaling == Llama3Rope(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context_length=64
    )
    config = read(tmp_path, OLD_LLAMA | {key: {"type": "linear", "factor": 2.0}})
    assert config.rope_scaling == LinearRope(factor=2.0)


def test_the_theta_inside_rope_parameters_wins(tmp_path):
    rope = {"rope_type": "default", "rope_theta": 7e4}
    assert read(tmp_path, OLD_LLAMA | {"rope_parameters": rope}).rope_theta == 7e4


def test_mistral_windows_below_the_context_are_kept_and_others_are_none(tmp_path):
    base = OLD_LLAMA | {"model_type": "mistral"}
    assert read(tmp_path, base | {"sliding_window": 1024}).layer_windows == (None, None)
    assert read(tmp_path, base | {"sliding_window": None}).layer_windows == (None, None)
    assert read(tmp_path, base | {"sliding_window": 1023}).layer_windows == (1023, 1023)


def test_a_qwen_window_is_used_only_where_the_config_says_so(tmp_path):
    base = OLD_LLAMA | {"model_type": "qwen2", "sliding_window": 50}
    assert read(tmp_path, base).layer_windows == (None, None)
    old = base | {"use_sliding_window": True, "max_window_layers": 1}
    assert read(tmp_path, old).layer_windows == (None, 50)
    kinds = ["sliding_attention", "full_attention"]
    assert read(tmp_path, old | {"layer_types": kinds}).layer_windows == (50, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2', supported are llama, mistral, "),
        ({"model_type": None}, "model_type is None"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_type is 'yarn'"),
        ({"rope_scaling": "x"}, "an object is needed"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor is None, a number"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor is 0.0"),
        ({"rope_scaling": LLAMA3 | {"low_freq_factor": 4}}, "low_freq_factor is 4.0"),
        ({"hidden_size": None}, "hidden_size is None, a whole number"),
        ({"hidden_size": "96"}, "hidden_size is '96'"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"hidden_size": 10**30}, f"hidden_size is {10**30}"),
        ({"num_hidden_layers": -1}, "num_layers is -1"),
        ({"num_hidden_layers": 10**12}, f"num_layers is {10**12}"),
        ({"num_attention_heads": 0}, "num_heads is 0"),
        ({"num_key_value_heads": 4}, "not a multiple of num_kv_heads 4"),
        ({"head_dim": 15}, "head_dim is 15"),
        ({"rms_norm_eps": "x"}, "rms_norm_eps is 'x'"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps is beyond"),
        ({"rope_theta": float("nan")}, "rope_theta nan"),
        ({"attention_bias": "yes"}, "attention_bias is 'yes', true or false"),
        ({"model_type": "mistral", "sliding_window": 0}, "sliding_window is 0"),
        ({"model_type": "qwen3", "use_sliding_window": True, "sliding_window": 9,
          "layer_types": ["full_attention"]}, "must name 2 layers"),
        ({"model_type": "qwen3", "use_sliding_window": True, "sliding_window": 9,
          "layer_types": ["full_attention", "chunked"]}, "layer_types has 'chunked'"),
    ],
)  # fmt: skip
def test_what_is_not_built_or_not_right_is_refused_by_name(tmp_path, change, message):
    with pytest.raises(BadCheckpoint, match=message):
        read(tmp_path, OLD_LLAMA | change)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": ' * 100_000, "\udcff", "9" * 10_000])
def test_a_file_that_is_no_json_object_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(BadCheckpoint, match=r"config.json: "):
        read_json(tmp_path / "config.json")


def test_a_missing_or_huge_file_is_refused(tmp_path):
    with pytest.raises(BadCheckpoint, match="cannot be read"):
        read_json(tmp_path / "config.json")
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(BadCheckpoint, match="larger than the limit"):
        read_json(tmp_path / "huge.json")
