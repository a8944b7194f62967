"""What becomes of a matrix: repacked as it is, rounded where that was asked for, or refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind
from safetensors.torch import load_file, save_file

from ranks.errors import BadCheckpoint
from ranks.models import native_weights
from ranks.models.native_weights import Weights, why_not_native, why_not_rounded
from ranks.models.registry import choose_products, open_checkpoint
from ranks.native.packing import ROWS_AT_ONCE, MatrixKind, to_floats, unpack
from ranks.native.quantize import quantize_eight, quantize_four
from tests.support.native_models import in_numpy
from tests.support.tiny_checkpoints import interleave, write_gguf, write_hf_checkpoint
from tests.support.tiny_worlds import (
    World,
    decode_greedily,
    load_models,
    load_world,
)

CPU = torch.device("cpu")
ROUNDED = (Weights.INT8, Weights.INT4)
PROMPT = [11, 250, 7, 99, 42, 3, 180, 5, 5, 61, 300, 0, 17, 8, 23, 42, 77]


@pytest.fixture(scope="module")
def quantized(tmp_path_factory):
    path = tmp_path_factory.mktemp("quantized") / "model.gguf"
    write_gguf(path, Kind.Q4_1)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("floats")
    return path, write_hf_checkpoint(path, "llama_grouped")


@pytest.fixture
def checkpoint(quantized):
    return open_checkpoint(quantized)


def test_a_file_of_groups_is_taken(checkpoint):
    assert why_not_native(checkpoint.config, checkpoint.source) is None


@pytest.mark.parametrize("kind", ["F16", "Q5_0"])
def test_a_type_that_has_no_kernel_is_named(tmp_path, kind):
    write_gguf(tmp_path / "m.gguf", Kind[kind])
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    reason = why_not_native(checkpoint.config, checkpoint.source)
    assert reason is not None
    assert reason.endswith(f"has type {kind}")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("hidden_size", 80, "hidden_size is 80, no multiple of 32"),
        ("intermediate_size", 168, "intermediate_size is 168, no multiple of 32"),
        ("intermediate_size", 32, "intermediate_size is 32, too small to be cut"),
        ("head_dim", 8, "head_dim is 8, no multiple of 16"),
        ("num_heads", 9, "the width of a KV group is 48, no multiple of 32"),
    ],
)
def test_a_size_that_the_kernels_do_not_fit_is_named(checkpoint, field, value, reason):
    config = replace(checkpoint.config, **{field: value})
    assert why_not_native(config, checkpoint.source) == reason


def test_a_folder_is_not_computed_natively_as_it_is(folder):
    checkpoint = open_checkpoint(folder[0])
    assert why_not_native(checkpoint.config, checkpoint.source) == "the weights are no GGUF file"
    assert why_not_rounded(checkpoint.config, checkpoint.source) is None


def values_of(matrix, rows):
    return to_floats(unpack(matrix))[:rows]


@pytest.mark.parametrize("weights", ROUNDED)
def test_floats_are_rounded_group_by_group_and_the_vocabulary_to_eight_bits(folder, weights):
    path, reference = folder
    (model,) = load_models(path, 1, torch.int8, weights)
    parts, quantizer = model._parts, quantize_four if weights is Weights.INT4 else quantize_eight
    assert model.weights == weights
    for layer, expected in zip(parts.layers, reference.model.layers, strict=True):
        attention, mlp = expected.self_attn, expected.mlp
        named = [
            *zip(layer.qkv, (attention.q_proj, attention.k_proj, attention.v_proj), strict=True),
            (layer.gate, mlp.gate_proj),
            (layer.up, mlp.up_proj),
        ]
        for matrix, linear in named:
            weight = linear.weight.detach().numpy()
            assert matrix.kind == (4 if weights is Weights.INT4 else 8)
            assert np.array_equal(values_of(matrix, len(weight)), to_floats(quantizer(weight)))
        for cut, linear in ((layer.output, attention.o_proj), (layer.down, mlp.down_proj)):
            weight = linear.weight.detach().numpy()
            joined = np.concatenate([values_of(matrix, len(weight)) for matrix in cut], axis=1)
            assert np.array_equal(joined, to_floats(quantizer(weight)))
    table = reference.model.embed_tokens.weight.detach().numpy()
    assert np.array_equal(
        parts.table.look_up(torch.arange(len(table))).numpy(), to_floats(quantize_eight(table))
    )
    assert parts.table.look_up(torch.empty(0, dtype=torch.int64)).shape == (0, 96)
    assert parts.table.num_bytes == len(table) * 96 // 32 * 34
    assert parts.head.kind == MatrixKind.EIGHT_BIT
    head = reference.lm_head.weight.detach().numpy()
    assert np.array_equal(values_of(parts.head, len(head)), to_floats(quantize_eight(head)))


@pytest.mark.parametrize("weights", ROUNDED)
def test_one_rank_and_two_and_numpy_give_the_same_bits_and_replies(folder, weights):
    alone = load_world(folder[0], 1, dtype=torch.int8, weights=weights)
    two = load_world(folder[0], 2, dtype=torch.int8, weights=weights)
    reply = decode_greedily(alone, PROMPT, 12)
    assert decode_greedily(two, PROMPT, 12) == reply
    reference = World([in_numpy(alone.models[0])], 128, 16)
    assert decode_greedily(reference, PROMPT, 4) == reply[:4]


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16])
def test_a_gguf_of_floats_is_rounded_in_the_order_of_hugging_face(tmp_path, folder, kind):
    write_gguf(tmp_path / "m.gguf", kind)
    (model,) = load_models(tmp_path / "m.gguf", 1, torch.int8, Weights.INT4)
    query = folder[1].model.layers[0].self_attn.q_proj.weight.detach()
    stored = query.to({Kind.F16: torch.float16, Kind.BF16: torch.bfloat16}.get(kind, torch.float32))
    expected = to_floats(quantize_four(stored.float().numpy()))
    found = values_of(model._parts.layers[0].qkv[0], len(expected))
    assert np.array_equal(found, expected)
    assert not np.array_equal(found, interleave(expected))


@pytest.mark.parametrize("kind", [Kind.Q5_0, Kind.Q5_1])
@pytest.mark.parametrize("weights", ROUNDED)
def test_groups_that_have_no_kernel_are_expanded_and_rounded(tmp_path, kind, weights):
    reference = write_gguf(tmp_path / "m.gguf", kind)
    (model,) = load_models(tmp_path / "m.gguf", 1, torch.int8, weights)
    up = reference.model.layers[1].mlp.up_proj.weight.detach().numpy()
    quantizer = quantize_four if weights is Weights.INT4 else quantize_eight
    found = values_of(model._parts.layers[1].up, len(up))
    np.testing.assert_allclose(found, to_floats(quantizer(up)), atol=1e-6)


def test_groups_that_have_a_kernel_stay_as_they_are_beside_what_is_rounded(quantized, monkeypatch):
    """As in a file whose head alone has another type."""
    checkpoint = open_checkpoint(quantized)
    real, source = checkpoint.source.kind_name, checkpoint.source
    odd = "layers.0.mlp.up_proj.weight"
    monkeypatch.setattr(source, "kind_name", lambda name: "Q6_K" if name == odd else real(name))
    assert why_not_rounded(checkpoint.config, source) is None
    (stored,) = load_models(quantized, 1, torch.int8)
    monkeypatch.setattr("tests.support.tiny_worlds.open_checkpoint", lambda path: checkpoint)
    (mixed,) = load_models(quantized, 1, torch.int8, Weights.INT8)
    ours, theirs = mixed._parts.layers[0], stored._parts.layers[0]
    assert np.array_equal(ours.gate.data, theirs.gate.data)
    assert (ours.up.kind, theirs.up.kind) == (MatrixKind.EIGHT_BIT, MatrixKind.FOUR_BIT)
    ids = torch.arange(5)
    assert torch.equal(mixed._parts.table.look_up(ids), stored._parts.table.look_up(ids))


@pytest.mark.parametrize("weights", ROUNDED)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e6])
@pytest.mark.parametrize("name", ["layers.1.mlp.down_proj.weight", "embed_tokens.weight"])
def test_what_groups_cannot_hold_is_refused_by_the_name_of_its_tensor(
    tmp_path, weights, value, name
):
    write_hf_checkpoint(tmp_path, "llama_grouped")
    tensors = load_file(tmp_path / "model.safetensors")
    tensors[f"model.{name}"][3, 5] = value
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(BadCheckpoint) as failed:
        load_models(tmp_path, 1, torch.int8, weights)
    assert str(failed.value) == (
        f"{tmp_path}: --weights {weights} cannot be had: {name} holds {value:g}, "
        f"allowed are finite values up to 65504"
    )


def test_a_matrix_is_never_held_whole_as_floats(folder, monkeypatch):
    seen = []

    def watched(values):
        seen.append(values.shape)
        return quantize_eight(values)

    monkeypatch.setitem(native_weights._ROUND, MatrixKind.EIGHT_BIT, watched)
    monkeypatch.setattr(native_weights, "ROWS_AT_ONCE", 48)
    (expected,) = load_models(folder[0], 1, torch.int8, Weights.INT4)
    assert max(rows for rows, _ in seen) == 48
    monkeypatch.setattr(native_weights, "ROWS_AT_ONCE", ROWS_AT_ONCE)
    (whole,) = load_models(folder[0], 1, torch.int8, Weights.INT4)
    assert np.array_equal(whole._parts.head.data, expected._parts.head.data)
    assert np.array_equal(whole._parts.layers[0].up.data, expected._parts.layers[0].up.data)


@pytest.mark.parametrize(
    ("weights", "asked", "chosen"),
    [
        (Weights.INT8, "auto", torch.int8),
        (Weights.INT4, "int8", torch.int8),
        (Weights.FLOAT32, "auto", torch.float32),
        (Weights.FLOAT32, "float32", torch.float32),
        (Weights.AUTO, "auto", torch.float32),
    ],
)
def test_weights_say_what_is_computed_with_also_without_a_library(
    folder, tmp_path, weights, asked, chosen
):
    checkpoint = open_checkpoint(folder[0])
    absent = tmp_path / "absent.so"
    found = choose_products(asked, CPU, checkpoint, weights=weights, library=absent)
    assert found == chosen


def test_float32_is_taken_of_groups_and_on_cuda_as_well(quantized):
    checkpoint, cuda = open_checkpoint(quantized), torch.device("cuda")
    assert choose_products("auto", CPU, checkpoint, weights=Weights.FLOAT32) == torch.float32
    assert choose_products("auto", cuda, checkpoint, weights=Weights.FLOAT32) == torch.float32


@pytest.mark.parametrize(
    ("device", "asked", "said"),
    [
        ("cpu", "auto", "--weights int4 cannot be had: all matrices are in groups already (Q4_1)"),
        ("cuda", "auto", "--weights int4 cannot be had: the device is cuda, not the CPU"),
        ("cpu", "float32", "--dtype is float32, with --weights int4 allowed is auto or int8"),
    ],
)
def test_weights_that_cannot_be_had_are_refused_and_not_replaced(quantized, device, asked, said):
    with pytest.raises(BadCheckpoint) as failed:
        choose_products(
            asked, torch.device(device), open_checkpoint(quantized), weights=Weights.INT4
        )
    assert str(failed.value).startswith(said)


def test_a_size_that_the_kernels_do_not_take_is_refused_with_its_number(tmp_path):
    write_hf_checkpoint(tmp_path, "llama")
    with pytest.raises(BadCheckpoint, match="intermediate_size is 168, no multiple of 32"):
        choose_products("auto", CPU, open_checkpoint(tmp_path), weights=Weights.INT8)
