import numpy as np
import pytest

from ranks.errors import BadCheckpoint
from ranks.weights.gguf_config import read_gguf_config
from ranks.weights.gguf_file import GgufFile
from ranks.weights.model_config import FactorRope, LinearRope
from tests.support.tiny_checkpoints import finish_gguf, make_reference, start_gguf


def read_config(path, architecture="llama", *, fields=None, tensors=None):
    """Write a GGUF of fields alone, some added, and read its config."""
    family = "qwen3" if architecture == "qwen3" else "llama"
    writer = start_gguf(path, architecture, make_reference(family).config)
    for name, value in (fields or {}).items():
        kind = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32,
                bool: writer.add_bool, list: writer.add_array}[type(value)]  # fmt: skip
        kind(name, value)
    for name, shape in ({"token_embd.weight": (301, 96)} if tensors is None else tensors).items():
        writer.add_tensor(name, np.full(shape, 2.0, dtype=np.float32))
    finish_gguf(writer)
    return read_gguf_config(path, GgufFile(path))


def test_the_fields_become_the_config(tmp_path):
    config = read_config(tmp_path / "a.gguf")
    assert (config.vocab_size, config.hidden_size, config.intermediate_size) == (301, 96, 168)
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (2, 6, 3)
    assert (config.head_dim, config.context_length) == (16, 1024)
    assert config.norm_eps == pytest.approx(1e-6)
    assert config.rope_theta == 10_000.0
    assert config.is_tied
    assert config.layer_windows == (None, None)
    assert not config.has_qk_norm


def test_what_tensors_are_there_says_what_is_tied_and_biased(tmp_path):
    tensors = {
        "token_embd.weight": (301, 96),
        "output.weight": (301, 96),
        "blk.0.attn_q.bias": (96,),
    }
    config = read_config(tmp_path / "a.gguf", "qwen2", tensors=tensors)
    assert not config.is_tied
    assert config.has_qkv_bias
    assert not config.has_output_bias


def test_qwen3_has_norms_of_heads_and_its_own_head_size(tmp_path):
    config = read_config(tmp_path / "a.gguf", "qwen3")
    assert config.has_qk_norm
    assert config.head_dim == 32


def test_linear_rope_scaling_and_rope_factors_are_kept(tmp_path):
    fields = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    assert read_config(tmp_path / "a.gguf", fields=fields).rope_scaling == LinearRope(factor=4.0)
    tensors = {"token_embd.weight": (301, 96), "rope_freqs.weight": (8,)}
    found = read_config(tmp_path / "b.gguf", tensors=tensors).rope_scaling
    assert found == FactorRope(factors=(2.0,) * 8)


@pytest.mark.parametrize(
    ("fields", "scaling"),
    [
        # llama.cpp takes a factor without a type for linear, and knows an older key.
        ({"llama.rope.scaling.factor": 4.0}, LinearRope(factor=4.0)),
        ({"llama.rope.scale_linear": 2.0}, LinearRope(factor=2.0)),
        (
            {"llama.rope.scaling.factor": 4.0, "llama.rope.scale_linear": 2.0},
            LinearRope(factor=4.0),
        ),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scale_linear": 2.0},
         LinearRope(factor=2.0)),
        ({"llama.rope.scaling.factor": 1.0}, None),
        ({"llama.rope.scaling.factor": 0.0}, None),
        ({"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 1.0}, None),
        ({"llama.rope.scaling.attn_factor": 1.0}, None),
    ],
)  # fmt: skip
def test_a_rope_factor_scales_as_in_llama_cpp(tmp_path, fields, scaling):
    assert read_config(tmp_path / "a.gguf", fields=fields).rope_scaling == scaling


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"llama.expert_count": 8}, "expert_count"),
        ({"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0},
         "rope.scaling.type is 'none' with a factor of 4.0"),
        ({"llama.rope.scaling.attn_factor": 1.5}, "rope.scaling.attn_factor is 1.5"),
        ({"llama.rope.scaling.type": "yarn"}, "rope.scaling.type is 'yarn'"),
        ({"llama.rope.scaling.type": "linear"}, "rope.scaling.factor is None"),
        ({"llama.attention.sliding_window": 100}, "sliding_window is 100"),
    ],
)  # fmt: skip
def test_what_is_not_built_is_refused_by_name(tmp_path, fields, message):
    with pytest.raises(BadCheckpoint, match=f"a.gguf: .*{message}"):
        read_config(tmp_path / "a.gguf", fields=fields)


@pytest.mark.parametrize("fields", [{"llama.rope.scaling.type": "linear"}, {}])
def test_rope_factors_beside_a_scaling_are_refused(tmp_path, fields):
    tensors = {"token_embd.weight": (301, 96), "rope_freqs.weight": (8,)}
    fields = fields | {"llama.rope.scaling.factor": 4.0}
    with pytest.raises(BadCheckpoint, match=r"rope_freqs.weight' has shape \(8,\) beside a factor"):
        read_config(tmp_path / "a.gguf", fields=fields, tensors=tensors)


@pytest.mark.parametrize(
    ("head_dim", "message"),
    [(1, "key_length is 1, it must be even"), (1 << 22, "key_length is 4194304, .* at most 4096")],
)
def test_a_hostile_head_is_refused_before_its_rope_factors_are_read(tmp_path, head_dim, message):
    path = tmp_path / "a.gguf"
    writer = start_gguf(path, "llama", make_reference("llama").config)
    for name in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        del writer.kv_data[0][f"llama.{name}"]
        writer.add_uint32(f"llama.{name}", head_dim)
    writer.add_tensor("token_embd.weight", np.zeros((301, 96), dtype=np.float32))
    writer.add_tensor("rope_freqs.weight", np.zeros(max(1, head_dim // 2), dtype=np.float32))
    finish_gguf(writer)
    with pytest.raises(BadCheckpoint, match=message):
        read_gguf_config(path, GgufFile(path))


def test_a_window_of_the_whole_context_is_none(tmp_path):
    config = read_config(tmp_path / "a.gguf", fields={"llama.attention.sliding_window": 1024})
    assert config.layer_windows == (None, None)


def write_broken(path, *, drop=None, replace=None, architecture="llama"):
    """A header with one field missing or of another kind."""
    writer = start_gguf(path, architecture, make_reference("llama").config)
    fields = writer.kv_data[0]
    if drop is not None:
        del fields[drop]
    if replace is not None:
        name, value = replace
        fields.pop(name, None)
        add = writer.add_string if isinstance(value, str) else writer.add_array
        add(name, value) if not isinstance(value, int) else writer.add_uint32(name, value)
    writer.add_tensor("token_embd.weight", np.zeros((301, 96), dtype=np.float32))
    finish_gguf(writer)
    return path


@pytest.mark.parametrize(
    "name",
    ["block_count", "context_length", "embedding_length", "feed_forward_length",
     "attention.head_count", "attention.layer_norm_rms_epsilon"],
)  # fmt: skip
def test_a_missing_field_is_named(tmp_path, name):
    path = write_broken(tmp_path / "a.gguf", drop=f"llama.{name}")
    with pytest.raises(BadCheckpoint, match=f"llama.{name} is None"):
        read_gguf_config(path, GgufFile(path))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("block_count", "two", "block_count is 'two', a whole number"),
        ("attention.head_count", [6, 6], r"head_count is \(6, 6\), a whole number"),
        ("attention.layer_norm_rms_epsilon", "x", "epsilon is 'x', a number"),
        ("block_count", 2**31, "num_layers is 2147483648"),
        ("attention.head_count", 0, "num_heads is 0"),
        ("attention.head_count_kv", 4, "not a multiple of num_kv_heads 4"),
        ("attention.key_length", 14, "rope.dimension_count is 16"),
    ],
)
def test_a_field_of_the_wrong_kind_or_size_is_named(tmp_path, name, value, message):
    path = write_broken(tmp_path / "a.gguf", replace=(f"llama.{name}", value))
    with pytest.raises(BadCheckpoint, match=message):
        read_gguf_config(path, GgufFile(path))


def test_another_architecture_is_refused_with_what_is_supported(tmp_path):
    path = write_broken(tmp_path / "a.gguf", architecture="gemma2")
    with pytest.raises(BadCheckpoint, match="'gemma2', supported are llama, qwen2, qwen3, gemma3"):
        read_gguf_config(path, GgufFile(path))


def test_a_file_without_an_embedding_is_refused(tmp_path):
    with pytest.raises(BadCheckpoint, match=r"'token_embd.weight' is missing"):
        read_config(tmp_path / "a.gguf", tensors={"output.weight": (301, 96)})
