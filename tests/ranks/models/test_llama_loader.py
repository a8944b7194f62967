"""How a checkpoint becomes a model: each kind of file, each way it can be wrong."""

import json

import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind
from safetensors.torch import load_file, save_file

from ranks.errors import BadCheckpoint
from ranks.layers.rotary import Rotary
from ranks.models.registry import load_model, open_checkpoint
from ranks.shards import cut_shards
from ranks.weights.model_config import FactorRope
from tests.support.tiny_checkpoints import (
    FAMILIES,
    VOCAB_SIZE,
    finish_gguf,
    make_reference,
    start_gguf,
    write_gguf,
    write_hf_checkpoint,
)
from tests.support.tiny_worlds import CPU, Lane, load_models, load_world, scattered_table

PROMPT = [11, 250, 7, 99, 42, 3, 180, 300]
TYPES = (Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1)


def expect_reference(path, model, world_size):
    world = load_world(path, world_size)
    logits = world.step([Lane(0, PROMPT, scattered_table(0, 1, 64)).rows()])[0]
    with torch.inference_mode():
        expected = model(torch.tensor([PROMPT])).logits[0, -1]
    torch.testing.assert_close(logits, expected, rtol=2e-5, atol=2e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_a_gguf_of_each_type_gives_the_logits_of_its_dequantised_values(tmp_path, kind, world_size):
    model = write_gguf(tmp_path / "tiny.gguf", kind)
    expect_reference(tmp_path / "tiny.gguf", model, world_size)


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize(
    ("architecture", "family"), [("qwen2", "qwen2"), ("qwen3", "qwen3_grouped")]
)
def test_other_architectures_are_read_without_interleaving(
    tmp_path, architecture, family, world_size
):
    model = write_gguf(tmp_path / "tiny.gguf", Kind.F16, architecture=architecture, family=family)
    expect_reference(tmp_path / "tiny.gguf", model, world_size)


@pytest.mark.parametrize("world_size", [1, 2])
def test_biases_of_q_and_k_are_put_back_as_their_weights_are(tmp_path, world_size):
    model = write_gguf(tmp_path / "tiny.gguf", Kind.F16, family="llama_biased")
    assert model.model.layers[0].self_attn.q_proj.bias.abs().min() > 0
    expect_reference(tmp_path / "tiny.gguf", model, world_size)


def test_the_rope_factors_of_llama_cpp_are_the_frequencies_of_llama3(tmp_path):
    model = write_gguf(tmp_path / "tiny.gguf", Kind.F32, family="llama3_rope")
    model.save_pretrained(tmp_path / "hf")
    found, expected = open_checkpoint(tmp_path / "tiny.gguf"), open_checkpoint(tmp_path / "hf")
    assert isinstance(found.config.rope_scaling, FactorRope)
    assert len(set(found.config.rope_scaling.factors)) > 3  # kept, blended and divided ones
    torch.testing.assert_close(
        *(
            Rotary(
                one.config.rope, head_dim=one.config.head_dim, device=CPU, dtype=torch.float32
            )._frequencies
            for one in (found, expected)
        ),
        rtol=1e-6,
        atol=0,
    )
    expect_reference(tmp_path / "tiny.gguf", model, 1)


@pytest.mark.parametrize("world_size", [1, 2])
def test_several_files_with_an_index_are_one_model(tmp_path, world_size):
    model = write_hf_checkpoint(tmp_path, "llama", max_shard_size="200KB")
    expect_reference(tmp_path, model, world_size)


def test_bfloat16_files_load_as_the_type_that_is_asked_for(tmp_path):
    model = write_hf_checkpoint(tmp_path, "llama")
    with torch.no_grad():
        for parameter in model.parameters():  # not the buffers: they are no weights
            parameter.copy_(parameter.bfloat16())
    change_safetensors(
        tmp_path, lambda t: t.update({name: value.bfloat16() for name, value in t.items()})
    )
    expect_reference(tmp_path, model, 1)
    loaded = load_model(
        open_checkpoint(tmp_path), shards=cut_shards(3, rank=0, world_size=1), device=CPU,
        dtype=torch.bfloat16, on_progress=lambda done, total: None,
    )  # fmt: skip
    assert loaded.dtype == torch.bfloat16
    store = loaded.new_kv_store(4, 16)
    assert store.num_bytes == 5 * loaded.kv_bytes_per_block(16)


def test_a_lower_type_computes_nearly_the_same(tmp_path):
    model = write_hf_checkpoint(tmp_path, "qwen3")
    world = load_world(tmp_path, 1)
    world.models = [
        load_model(
            open_checkpoint(tmp_path), shards=cut_shards(3, rank=0, world_size=1), device=CPU,
            dtype=torch.bfloat16, on_progress=lambda done, total: None,
        )
    ]  # fmt: skip
    world.stores = [world.models[0].new_kv_store(64, 16)]
    logits = world.step([Lane(0, PROMPT, scattered_table(0, 1, 64)).rows()])[0]
    with torch.inference_mode():
        expected = model(torch.tensor([PROMPT])).logits[0, -1]
    assert torch.nn.functional.cosine_similarity(logits, expected, dim=0) > 0.999


def test_a_model_of_one_query_head_runs_on_one_rank(tmp_path):
    config = FAMILIES["llama"]()
    config.num_attention_heads = config.num_key_value_heads = 1
    torch.manual_seed(1)
    model = type(make_reference("llama"))(config).eval()
    model.save_pretrained(tmp_path)
    expect_reference(tmp_path, model, 1)
    with pytest.raises(BadCheckpoint, match="num_heads is 1"):
        load_models(tmp_path, 2)


def test_progress_rises_to_its_total_on_every_rank(tmp_path):
    write_hf_checkpoint(tmp_path, "llama")
    totals = set()
    for rank in (0, 1):
        seen = []
        load_model(
            open_checkpoint(tmp_path), shards=cut_shards(3, rank=rank, world_size=2), device=CPU,
            dtype=torch.float32, on_progress=lambda *counts, seen=seen: seen.append(counts),
        )  # fmt: skip
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        assert seen[-1][0] == seen[-1][1]
        assert len(seen) > 10
        totals.add(seen[-1][1])
    assert len(totals) == 1


def change_safetensors(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("model.layers.1.mlp.up_proj.weight"),
         r"'layers.1.mlp.up_proj.weight' is missing.*\(168, 96\)"),
        (lambda t: t.pop("lm_head.weight"), r"'lm_head.weight' is missing"),
        (lambda t: t.update({"model.norm.weight": torch.zeros(95)}),
         r"'norm.weight' has shape \(95,\), the config says \(96,\)"),
        (lambda t: t.update({"model.layers.0.self_attn.k_proj.weight": torch.zeros(96, 96)}),
         r"k_proj.weight' has shape \(96, 96\), the config says \(48, 96\)"),
        (lambda t: t.update({"model.embed_tokens.weight": torch.zeros(300, 96)}),
         r"'embed_tokens.weight' has shape \(300, 96\)"),
        (lambda t: t.update({"model.layers.0.self_attn.q_proj.bias": torch.zeros(96)}),
         r"'layers.0.self_attn.q_proj.bias' and 0 more are not part"),
        (lambda t: t.update({"model.layers.2.mlp.up_proj.weight": torch.zeros(168, 96)}),
         r"'layers.2.mlp.up_proj.weight' and 0 more"),
        (lambda t: t.update({"model.norm.weight": torch.zeros(96, dtype=torch.int32)}),
         "'norm.weight' has type I32"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("world_size", [1, 2])
def test_tensors_that_do_not_fit_the_config_are_refused_by_name(
    tmp_path, change, message, world_size
):
    write_hf_checkpoint(tmp_path, "llama")
    change_safetensors(tmp_path, change)
    with pytest.raises(BadCheckpoint, match=message):
        load_models(tmp_path, world_size)


def test_a_config_that_lies_about_sizes_is_refused(tmp_path):
    write_hf_checkpoint(tmp_path, "llama")
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"intermediate_size": 176}))
    with pytest.raises(BadCheckpoint, match=r"has shape \(168, 96\), the config says \(176, 96\)"):
        load_models(tmp_path, 1)


def test_a_tied_head_needs_no_tensor_and_ignores_one_that_is_there(tmp_path):
    model = write_hf_checkpoint(tmp_path, "llama_tied")
    expect_reference(tmp_path, model, 2)
    change_safetensors(
        tmp_path, lambda t: t.update({"lm_head.weight": torch.zeros(VOCAB_SIZE, 96)})
    )
    expect_reference(tmp_path, model, 2)


def test_a_gguf_that_lacks_tensors_is_refused_by_name(tmp_path):
    writer = start_gguf(tmp_path / "a.gguf", "llama", make_reference("llama").config)
    writer.add_tensor("token_embd.weight", np.zeros((VOCAB_SIZE, 96), dtype=np.float32))
    finish_gguf(writer)
    with pytest.raises(BadCheckpoint, match=r"'layers.0.input_layernorm.weight' is missing"):
        load_models(tmp_path / "a.gguf", 1)
