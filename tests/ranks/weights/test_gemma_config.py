import json

import pytest
import transformers

from ranks.errors import BadCheckpoint
from ranks.weights.hf_config import read_hf_config
from ranks.weights.model_config import LinearRope, Rope
from tests.support.tiny_gemma3 import RELEASED, make_gemma3, make_gemma3_text

TEXT_ONLY = RELEASED["text_config"] | {
    "head_dim": 128,
    "max_position_embeddings": 32_768,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 64,
    "rms_norm_eps": 1e-5,
    "rope_local_base_freq": 123.0,
    "rope_theta": 4567.0,
    "sliding_window_pattern": 4,
    "vocab_size": 262_144,
}


def read(folder, values):
    (folder / "config.json").write_text(json.dumps(values))
    return read_hf_config(folder / "config.json")


def facts_of(text):
    """What a config of transformers makes its model compute, by our names."""
    ropes = text.rope_parameters
    full, local = ropes["full_attention"], ropes["sliding_attention"]
    is_local = tuple(kind == "sliding_attention" for kind in text.layer_types)
    return {
        "vocab_size": text.vocab_size,
        "context_length": text.max_position_embeddings,
        "hidden_size": text.hidden_size,
        "intermediate_size": text.intermediate_size,
        "num_layers": text.num_hidden_layers,
        "num_heads": text.num_attention_heads,
        "num_kv_heads": text.num_key_value_heads,
        "head_dim": text.head_dim,
        "norm_eps": text.rms_norm_eps,
        "rope_theta": full["rope_theta"],
        "rope_scaling": LinearRope(factor=full["factor"]) if "factor" in full else None,
        "has_qkv_bias": text.attention_bias,
        "has_output_bias": text.attention_bias,
        "is_tied": text.tie_word_embeddings,
        "layer_windows": tuple(text.sliding_window if one else None for one in is_local),
        "local_rope": Rope(theta=local["rope_theta"], scaling=None),
        "is_local": is_local,
        "score_scale": text.query_pre_attn_scalar**-0.5,
        "embedding_scale": text.hidden_size**0.5,
    }


@pytest.mark.parametrize(
    "values",
    [RELEASED, RELEASED | {"text_config": {}}, TEXT_ONLY, {"model_type": "gemma3_text"}],
)
def test_what_is_read_is_what_transformers_computes(tmp_path, values):
    config = read(tmp_path, values)
    reference = transformers.AutoConfig.from_pretrained(tmp_path).get_text_config()
    facts = facts_of(reference)
    for name, expected in facts.items():
        owner = config if hasattr(config, name) else config.gemma
        assert getattr(owner, name) == expected, name
    assert config.family == "gemma3"
    assert config.gemma.norm_offset == 1
    assert (config.gemma.vision is None) == (values["model_type"] == "gemma3_text")


@pytest.mark.parametrize("make", [make_gemma3, make_gemma3_text])
def test_what_transformers_writes_is_read(tmp_path, make):
    model = make()
    model.config.save_pretrained(tmp_path)
    config = read_hf_config(tmp_path / "config.json")
    for name, expected in facts_of(model.config.get_text_config()).items():
        owner = config if hasattr(config, name) else config.gemma
        assert getattr(owner, name) == expected, name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_activation": "relu"}, "hidden_activation is 'relu', supported is 'gelu_py"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30"),
        ({"attn_logit_softcapping": 30.0}, "attn_logit_softcapping is 30"),
        ({"quantization_config": {}}, "quantization_config"),
        ({"use_bidirectional_attention": True}, "only text that is causal"),
        ({"sliding_window": 0}, "sliding_window is 0"),
        ({"sliding_window": None}, "sliding_window is None"),
        ({"sliding_window_pattern": 0}, "sliding_window_pattern is 0"),
        ({"layer_types": ["full_attention"]}, "layer_types must name 34 layers"),
        ({"layer_types": ["chunked_attention"] * 34}, "layer_types has 'chunked_attention'"),
        ({"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0"),
        ({"rope_scaling": 3}, "rope_scaling is 3"),
        ({"rope_parameters": {"full_attention": 3}}, "full_attention is 3"),
        ({"hidden_size": "a"}, "hidden_size is 'a'"),
    ],
)
def test_what_is_not_built_is_refused_by_name(tmp_path, change, words):
    with pytest.raises(BadCheckpoint, match=words):
        read(tmp_path, RELEASED["text_config"] | change)
    with pytest.raises(BadCheckpoint, match=words):
        read(tmp_path, RELEASED | {"text_config": RELEASED["text_config"] | change})


def test_a_model_with_eyes_has_its_text_in_an_object(tmp_path):
    with pytest.raises(BadCheckpoint, match="text_config is None, an object is needed"):
        read(tmp_path, {"model_type": "gemma3"})
