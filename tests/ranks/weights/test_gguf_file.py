import numpy as np
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import dequantize

from ranks.errors import BadCheckpoint
from ranks.weights.gguf_file import SUPPORTED_TYPES, GgufFile
from tests.support.tiny_checkpoints import (
    HEAD_DIM,
    finish_gguf,
    interleave,
    make_reference,
    start_gguf,
    write_gguf,
)  # fmt: skip

QUANTISED = (Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1)


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name)
def test_each_type_reads_as_the_reference_dequantises_it(tmp_path, kind):
    path = tmp_path / "tiny.gguf"
    model = write_gguf(path, kind)
    file = GgufFile(path)
    file.undo_interleaving(HEAD_DIM)

    for name, parameter in model.named_parameters():
        found = file.read(name.removeprefix("model."), rows=range(parameter.shape[0]), columns=None)
        assert found.dtype == torch.float32
        assert torch.equal(found, parameter.detach()), name


@pytest.mark.parametrize("kind", SUPPORTED_TYPES, ids=lambda kind: kind.name)
def test_a_part_is_the_part_of_the_whole_even_inside_a_group(tmp_path, kind):
    group, group_bytes = GGML_QUANT_SIZES[kind]
    raw = np.random.default_rng(3).integers(0, 60, (9, 512 // group * group_bytes), dtype=np.uint8)
    writer = start_gguf(tmp_path / "one.gguf", "llama", make_reference("llama").config)
    plain = {Kind.F32: np.float32, Kind.F16: np.float16}
    stored = raw.view(plain[kind]) if kind in plain else raw
    writer.add_tensor("blk.0.ffn_down.weight", stored, raw_dtype=kind)
    finish_gguf(writer)
    file = GgufFile(tmp_path / "one.gguf")
    whole = stored.astype(np.float32) if kind in plain else dequantize(raw, kind)

    for rows, columns in ((range(9), None), (range(2, 5), None), (range(1, 9), range(112, 299))):
        found = file.read("layers.0.mlp.down_proj.weight", rows=rows, columns=columns)
        expected = whole[rows.start : rows.stop, slice(None) if columns is None else columns]
        np.testing.assert_array_equal(found.numpy(), expected)


def test_the_halves_of_a_head_are_joined_for_any_heads(tmp_path):
    model = write_gguf(tmp_path / "tiny.gguf", Kind.F32)
    file = GgufFile(tmp_path / "tiny.gguf")
    file.undo_interleaving(HEAD_DIM)
    weight = model.model.layers[1].self_attn.q_proj.weight.detach()

    part = file.read(
        "layers.1.self_attn.q_proj.weight", rows=range(2 * HEAD_DIM, 5 * HEAD_DIM), columns=None
    )

    assert torch.equal(part, weight[2 * HEAD_DIM : 5 * HEAD_DIM])
    assert not np.array_equal(interleave(weight.numpy()), weight.numpy())


def test_an_unsupported_type_names_tensor_type_and_what_is_supported(tmp_path):
    writer = start_gguf(tmp_path / "one.gguf", "llama", make_reference("llama").config)
    raw = np.zeros((4, 2 * GGML_QUANT_SIZES[Kind.IQ2_XXS][1]), dtype=np.uint8)
    writer.add_tensor("blk.0.ffn_up.weight", raw, raw_dtype=Kind.IQ2_XXS)
    finish_gguf(writer)
    file = GgufFile(tmp_path / "one.gguf")
    with pytest.raises(
        BadCheckpoint, match=r"one.gguf: tensor 'blk.0.ffn_up.weight' has type IQ2_XXS.*Q4_1"
    ):
        file.read("layers.0.mlp.up_proj.weight", rows=range(4), columns=None)


def test_names_are_translated_and_unknown_ones_kept(tmp_path):
    writer = start_gguf(tmp_path / "one.gguf", "llama", make_reference("llama").config)
    for name in (
        "token_embd.weight",
        "blk.7.attn_k_norm.weight",
        "blk.x",
        "blk.0.ffn_gate_inp.weight",
    ):
        writer.add_tensor(name, np.zeros(4, dtype=np.float32))
    finish_gguf(writer)
    assert GgufFile(tmp_path / "one.gguf").names() == {
        "embed_tokens.weight",
        "layers.7.self_attn.k_norm.weight",
        "blk.x",
        "blk.0.ffn_gate_inp.weight",
    }


def test_two_tensors_of_one_meaning_are_refused_by_both_names(tmp_path):
    writer = start_gguf(tmp_path / "one.gguf", "llama", make_reference("llama").config)
    for name in ("token_embd.weight", "embed_tokens.weight"):
        writer.add_tensor(name, np.zeros(4, dtype=np.float32))
    finish_gguf(writer)
    with pytest.raises(
        BadCheckpoint, match=r"one.gguf: tensors 'token_embd.weight' and 'embed_tokens.weight'"
    ):
        GgufFile(tmp_path / "one.gguf")


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.write_bytes(b"")])
def test_a_file_that_cannot_be_mapped_is_refused(tmp_path, make):
    make(tmp_path / "x.gguf")
    with pytest.raises(BadCheckpoint, match=r"x.gguf: cannot be read"):
        GgufFile(tmp_path / "x.gguf")
