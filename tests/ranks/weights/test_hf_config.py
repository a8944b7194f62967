import json

import pytest
import transformers

from ranks.errors import BadCheckpoint
from ranks.weights.hf_config import read_hf_config
from ranks.weights.model_config import LinearRope, Llama3Rope
from tests.support.tiny_checkpoints import FAMILIES

OLD_LLAMA = {
    "model_type": "llama",
    "vocab_size": 301,
    "hidden_size": 96,
    "intermediate_size": 168,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
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
    assert config.num_kv_heads == (1 if family.endswith("one_kv") else 3)
    assert config.head_dim == (32 if family.startswith("qwen3") else 16)
    assert config.is_tied == (family == "llama_tied")
    assert config.has_qkv_bias == family.startswith(("llama_biased", "qwen2"))
    assert config.has_output_bias == config.has_mlp_bias == family.startswith("llama_biased")
    windows = {"mistral_window": (9, 9), "qwen2_window": (None, 9)}
    assert config.layer_windows == windows.get(family, (None,) * config.num_layers)
    assert config.gemma is None


# Heads and a context for which no default can be taken for another.
FULL = OLD_LLAMA | {
    "num_attention_heads": 64, "num_key_value_heads": 16, "hidden_size": 1024, "head_dim": 64,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
    "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "tie_word_embeddings": True,
    "hidden_act": "silu",
}  # fmt: skip
QWEN = {"use_sliding_window": True, "sliding_window": 99, "max_window_layers": 1}
LISTED = QWEN | {"layer_types": ["sliding_attention", "full_attention"]}
BIASED = {"attention_bias": True}
WRITTEN = [
    FULL | {"model_type": "llama"} | BIASED | {"mlp_bias": True},
    FULL | {"model_type": "mistral", "sliding_window": 99},
    FULL | {"model_type": "qwen2"} | QWEN,
    FULL | {"model_type": "qwen2"} | LISTED,
    FULL | {"model_type": "qwen3"} | QWEN | BIASED,
    FULL | {"model_type": "qwen3"} | LISTED | BIASED,
]


@pytest.mark.parametrize("family", [None, 7, True, [], ["llama"], {}, {"llama": 1}, "bert"])
def test_a_model_type_that_is_none_of_ours_is_refused_whatever_json_it_is(tmp_path, family):
    (tmp_path / "config.json").write_text(json.dumps(OLD_LLAMA | {"model_type": family}))
    with pytest.raises(BadCheckpoint, match=r"model_type is .*supported are llama"):
        read_hf_config(tmp_path / "config.json")


def facts_of(reference):
    """What a config of transformers makes its model compute, by our names."""
    family, num_layers = reference.model_type, reference.num_hidden_layers
    rope = reference.rope_parameters
    # Qwen2's attention takes it so; the others' configs compute it.
    head_dim = getattr(
        reference, "head_dim", reference.hidden_size // reference.num_attention_heads
    )
    kinds = getattr(reference, "layer_types", None) or ["full_attention"] * num_layers
    if family == "mistral" and reference.sliding_window is not None:
        kinds = ["sliding_attention"] * num_layers
    can_bias = family in ("llama", "qwen3") and reference.attention_bias
    return {
        "num_kv_heads": reference.num_key_value_heads,
        "head_dim": head_dim,
        "norm_eps": reference.rms_norm_eps,
        "rope_theta": rope["rope_theta"],
        "rope_scaling": LinearRope(factor=rope["factor"]) if "factor" in rope else None,
        "is_tied": reference.tie_word_embeddings,
        "has_qkv_bias": can_bias or family == "qwen2",
        "has_output_bias": can_bias,
        "has_mlp_bias": family == "llama" and reference.mlp_bias,
        "layer_windows": tuple(
            reference.sliding_window if kind == "sliding_attention" else None for kind in kinds
        ),
    }


def facts_in_transformers(folder, values):
    """The facts, or None when transformers does not take the config."""
    (folder / "config.json").write_text(json.dumps(values))
    try:
        facts = facts_of(transformers.AutoConfig.from_pretrained(folder))
    except Exception:  # noqa: BLE001 (a validation error of its own, of several classes)
        return None
    # These raise when the model is built or run.
    is_broken = facts["head_dim"] is None or facts["rope_theta"] is None
    lacks_window = values.get("layer_types") and set(facts["layer_windows"]) == {None}
    return None if is_broken or lacks_window else facts


def without(values, name):
    return {key: value for key, value in values.items() if key != name}


OPTIONAL = [
    (values, name)
    for values in WRITTEN
    for name in (*values, "rope_parameters")
    if name not in (*OLD_LLAMA, "model_type") or name == "num_key_value_heads"
]


@pytest.mark.parametrize(
    ("values", "name"), OPTIONAL, ids=lambda v: v if isinstance(v, str) else v["model_type"]
)
@pytest.mark.parametrize("change", ["absent", "null"])
def test_a_field_that_is_absent_or_null_means_what_it_means_to_transformers(
    tmp_path, values, name, change
):
    values = without(values, name) if change == "absent" else values | {name: None}
    expected = facts_in_transformers(tmp_path, values)
    if expected is None:
        with pytest.raises(BadCheckpoint, match=f"{name} is None|without a sliding_window"):
            read(tmp_path, values)
    else:
        config = read(tmp_path, values)
        assert {fact: getattr(config, fact) for fact in expected} == expected


@pytest.mark.parametrize("values", WRITTEN, ids=lambda values: values["model_type"])
def test_a_field_that_is_there_means_what_it_means_to_transformers(tmp_path, values):
    expected = facts_in_transformers(tmp_path, values)
    assert expected is not None
    config = read(tmp_path, values)
    assert {fact: getattr(config, fact) for fact in expected} == expected


def test_rope_scaling_wins_over_rope_parameters_as_in_transformers(tmp_path):
    values = FULL | {"rope_parameters": {"rope_type": "linear", "factor": 8.0}}
    expected = facts_in_transformers(tmp_path, values)
    assert read(tmp_path, values).rope_scaling == expected["rope_scaling"] == LinearRope(factor=2.0)


def test_the_original_context_of_llama3_is_the_context_where_it_is_not_named(tmp_path):
    values = FULL | {"rope_scaling": without(LLAMA3, "original_max_position_embeddings")}
    assert read(tmp_path, values).rope_scaling.original_context_length == 8192
    (tmp_path / "config.json").write_text(json.dumps(values))
    reference = transformers.AutoConfig.from_pretrained(tmp_path)
    assert reference.rope_parameters["original_max_position_embeddings"] == 8192


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
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}},
         "rope_parameters has an entry for 'full_attention': .* by layer type"),
        ({"model_type": "qwen3", "layer_types": ["sliding_attention"] * 2},
         "layer_types has 'sliding_attention' without a sliding_window"),
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
        ({"rope_scaling": LLAMA3 | {"original_max_position_embeddings": 10**400}},
         "original_max_position_embeddings is beyond the limit of 1e"),
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
