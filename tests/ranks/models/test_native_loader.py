"""What the kernels take is loaded as it is in the file; what they do not take is named."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType
from structlog.testing import capture_logs

from ranks.errors import BadCheckpoint
from ranks.models import native_loader
from ranks.models.registry import open_checkpoint
from ranks.native.library import NoLibrary
from ranks.native.packing import GROUP, unpack
from tests.support.tiny_checkpoints import write_gguf
from tests.support.tiny_worlds import load_models


@pytest.fixture(scope="module")
def quantized(tmp_path_factory):
    path = tmp_path_factory.mktemp("quantized") / "model.gguf"
    return path, write_gguf(path, GGMLQuantizationType.Q4_1)


@pytest.fixture
def checkpoint(quantized):
    return open_checkpoint(quantized[0])


def to_values(matrix):
    groups = unpack(matrix)
    quants = groups.quants.reshape(matrix.outputs, -1, GROUP).astype(np.float32)
    values = quants * groups.scales[:, :, None] + groups.minimums[:, :, None]
    return values.reshape(matrix.outputs, -1)


def test_weights_are_the_very_values_of_the_file_in_the_order_of_hugging_face(quantized):
    path, reference = quantized
    (model,) = load_models(path, 1, torch.int8)
    for parts, layer in zip(model._parts.layers, reference.model.layers, strict=True):
        attention, mlp = layer.self_attn, layer.mlp
        whole = [*parts.qkv, parts.gate, parts.up]
        expected = [
            attention.q_proj,
            attention.k_proj,
            attention.v_proj,
            mlp.gate_proj,
            mlp.up_proj,
        ]
        for matrix, linear in zip(whole, expected, strict=True):
            np.testing.assert_allclose(to_values(matrix), linear.weight.detach(), atol=1e-6)
        for cut, linear in ((parts.output, attention.o_proj), (parts.down, mlp.down_proj)):
            joined = np.concatenate([to_values(matrix) for matrix in cut], axis=1)
            np.testing.assert_allclose(joined, linear.weight.detach(), atol=1e-6)


def test_two_ranks_hold_what_one_holds_cut_on_groups(quantized):
    (whole,) = load_models(quantized[0], 1, torch.int8)
    halves = load_models(quantized[0], 2, torch.int8)
    assert [model._parts.shape.mlp_parts for model in halves] == [(128,), (96,)]
    assert [model._parts.shape.head_parts for model in halves] == [(4,), (2,)]
    for number, layer in enumerate(whole._parts.layers):
        for shard, model in enumerate(halves):
            own = model._parts.layers[number]
            assert np.array_equal(own.output[0].data, layer.output[shard].data)
            assert np.array_equal(own.down[0].data, layer.down[shard].data)


def test_a_tensor_of_another_shape_is_refused(checkpoint):
    config = replace(checkpoint.config, intermediate_size=256)
    broken = replace(checkpoint, config=config)
    with pytest.raises(BadCheckpoint, match="the config says"):
        load(broken)


def test_a_scale_beyond_bounds_names_file_and_tensor(tmp_path):
    path = tmp_path / "m.gguf"
    write_gguf(path, GGMLQuantizationType.Q4_0)
    at = open_checkpoint(path).source.header.tensors["blk.1.ffn_up.weight"].offset
    with path.open("r+b") as file:
        file.seek(at)
        file.write(np.float16([20_000]).tobytes())
    with pytest.raises(
        BadCheckpoint, match=r"m\.gguf: tensor 'layers.1.mlp.up_proj.weight': .* 20000\.0, .* 8188"
    ):
        load(open_checkpoint(path))


def load(checkpoint):
    from ranks.models.registry import load_model  # noqa: PLC0415 (kept beside its only use)
    from ranks.shards import cut_shards  # noqa: PLC0415

    return load_model(
        checkpoint,
        shards=cut_shards(3, rank=0, world_size=1),
        device=torch.device("cpu"),
        dtype=torch.int8,
        on_progress=lambda done, total: None,
    )


def test_without_a_library_numpy_computes_and_one_line_says_so(checkpoint, monkeypatch):
    def open_nothing():
        raise NoLibrary("it was not built")

    monkeypatch.setattr(native_loader, "open_library", open_nothing)
    with capture_logs() as logs:
        model = load(checkpoint)
    assert model.products == "native-numpy"
    assert [log["event"] for log in logs] == ["native_library_absent"]
    assert logs[0]["reason"] == "it was not built"
