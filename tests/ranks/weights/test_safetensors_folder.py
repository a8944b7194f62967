import contextlib
import json
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from ranks.errors import BadCheckpoint
from ranks.weights.safetensors_folder import SafetensorsFolder
from tests.support.tiny_checkpoints import write_hf_checkpoint


def test_names_lose_the_leading_model_and_shapes_are_whole(tmp_path):
    reference = write_hf_checkpoint(tmp_path, "llama")
    folder = SafetensorsFolder(tmp_path)
    names = {name.removeprefix("model.") for name, _ in reference.named_parameters()}
    assert folder.names() == names
    assert folder.shape("layers.0.mlp.down_proj.weight") == (96, 168)
    assert folder.shape("nothing") is None
    assert folder.num_bytes("layers.0.mlp.down_proj.weight") == 96 * 168 * 4


def test_a_part_is_the_part_of_the_whole(tmp_path):
    reference = write_hf_checkpoint(tmp_path, "llama")
    weight = reference.model.layers[1].mlp.down_proj.weight
    norm = reference.model.norm.weight
    folder = SafetensorsFolder(tmp_path)
    name = "layers.1.mlp.down_proj.weight"
    assert torch.equal(folder.read(name, rows=range(3, 9), columns=None), weight[3:9])
    found = folder.read(name, rows=range(96), columns=range(96, 168))
    assert torch.equal(found, weight[:, 96:168])
    assert torch.equal(folder.read("norm.weight", rows=range(96), columns=None), norm)


def test_an_index_joins_several_files(tmp_path):
    reference = write_hf_checkpoint(tmp_path, "llama", max_shard_size="200KB")
    folder = SafetensorsFolder(tmp_path)
    assert len(folder.paths) > 2
    assert folder.paths == sorted(folder.paths)
    for name, parameter in reference.named_parameters():
        found = folder.read(
            name.removeprefix("model."), rows=range(parameter.shape[0]), columns=None
        )
        assert torch.equal(found, parameter)


def test_an_unsupported_type_names_tensor_type_and_what_is_supported(tmp_path):
    save_file({"a": torch.zeros(2, 2, dtype=torch.int8)}, tmp_path / "model.safetensors")
    with pytest.raises(BadCheckpoint, match="'a' has type I8, supported are F32, F16, BF16"):
        SafetensorsFolder(tmp_path).read("a", rows=range(2), columns=None)


def test_a_folder_without_weights_says_what_was_looked_for(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(BadCheckpoint, match=r"neither model.safetensors nor .*index.json"):
        SafetensorsFolder(tmp_path)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "weight_map must be an object"),
        ({"weight_map": {}}, "weight_map must be an object"),
        ({"weight_map": {"a": "../other/x.safetensors"}}, "a plain file name is needed"),
        ({"weight_map": {"a": "/etc/x.safetensors"}}, "a plain file name is needed"),
        ({"weight_map": {"a": "x.bin"}}, "'x.bin', a plain file name is needed"),
        ({"weight_map": {"a": 3}}, "names 3"),
        ({"weight_map": {"a": "missing.safetensors"}}, r"missing.safetensors: cannot be read"),
    ],
)
def test_a_bad_index_is_refused(tmp_path, index, message):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BadCheckpoint, match=message):
        SafetensorsFolder(tmp_path)


def test_a_tensor_in_two_files_is_refused(tmp_path):
    for name in ("a", "b"):
        save_file({"model.x": torch.zeros(1)}, tmp_path / f"{name}.safetensors")
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BadCheckpoint, match=r"b.safetensors: tensor 'model.x' is there twice"):
        SafetensorsFolder(tmp_path)


@pytest.fixture(scope="module")
def good_bytes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    save_file({"x": torch.arange(64.0).view(8, 8)}, folder / "model.safetensors")
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    "content",
    [b"", b"abc", struct.pack("<Q", 2**62), struct.pack("<Q", 10) + b"not json!!"],
    ids=["empty", "short", "huge header", "no json"],
)
def test_a_hostile_file_is_refused(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(BadCheckpoint, match=r"model.safetensors: cannot be read"):
        SafetensorsFolder(tmp_path)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 120), st.binary(min_size=1, max_size=6))
def test_a_damaged_file_is_read_or_refused_but_never_crashes(
    tmp_path_factory, good_bytes, at, noise
):
    folder = tmp_path_factory.mktemp("damaged")
    content = good_bytes[:at] + noise + good_bytes[at + len(noise) :]
    (folder / "model.safetensors").write_bytes(content)
    with contextlib.suppress(BadCheckpoint):
        source = SafetensorsFolder(folder)
        for name in source.names():
            shape = source.shape(name) or (0,)
            source.read(name, rows=range(shape[0]), columns=None)


@pytest.mark.parametrize("share", [0.01, 0.3, 0.9, 0.999])
def test_a_file_cut_anywhere_is_refused(tmp_path, good_bytes, share):
    (tmp_path / "model.safetensors").write_bytes(good_bytes[: int(len(good_bytes) * share)])
    with pytest.raises(BadCheckpoint):
        SafetensorsFolder(tmp_path)
