import dataclasses
import math

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from ranks.layers.rotary import Rotary, rotate
from ranks.weights.hf_config import read_hf_config
from ranks.weights.model_config import FactorRope
from tests.support.tiny_checkpoints import FAMILIES

CPU = torch.device("cpu")
POSITIONS = torch.tensor([0, 1, 2, 3, 63, 64, 100, 511, 1023])


def make_rotary(config, dtype=torch.float32):
    return Rotary(config.rope, head_dim=config.head_dim, device=CPU, dtype=dtype)


@pytest.mark.parametrize("family", ["llama", "llama3_rope", "linear_rope"])
def test_rotations_are_those_of_transformers(tmp_path, family):
    reference = FAMILIES[family]()
    reference.save_pretrained(tmp_path)
    rotary = make_rotary(read_hf_config(tmp_path / "config.json"))
    heads = torch.randn(len(POSITIONS), 6, 16)
    cos, sin = LlamaRotaryEmbedding(reference)(heads, POSITIONS[None])
    by_head = heads.transpose(0, 1)[None]
    expected, _ = apply_rotary_pos_emb(by_head, by_head, cos, sin)

    found = rotate(heads, rotary.at(POSITIONS))

    torch.testing.assert_close(found, expected[0].transpose(0, 1), rtol=1e-6, atol=2e-6)


def test_factors_divide_each_frequency(tmp_path):
    FAMILIES["llama"]().save_pretrained(tmp_path)
    config = read_hf_config(tmp_path / "config.json")
    factors = tuple(float(number) for number in range(1, 9))
    scaled = dataclasses.replace(config, rope_scaling=FactorRope(factors=factors))
    expected = make_rotary(config)._frequencies / torch.tensor(factors)
    assert torch.equal(make_rotary(scaled)._frequencies, expected)


def test_a_position_has_the_same_bits_alone(tmp_path):
    FAMILIES["llama"]().save_pretrained(tmp_path)
    rotary = make_rotary(read_hf_config(tmp_path / "config.json"))
    together = rotary.at(POSITIONS)
    for row in range(len(POSITIONS)):
        alone = rotary.at(POSITIONS[row : row + 1])
        assert torch.equal(alone.cos[0], together.cos[row])
        assert torch.equal(alone.signed_sin[0], together.signed_sin[row])


def test_sine_and_cosine_are_the_nearest_float32(tmp_path):
    FAMILIES["llama"]().save_pretrained(tmp_path)
    rotary = make_rotary(read_hf_config(tmp_path / "config.json"))
    positions = torch.arange(0, 4000, 3)
    angles = (positions.float()[:, None] * rotary._frequencies).flatten().tolist()
    expected = [
        torch.tensor([function(angle) for angle in angles], dtype=torch.float64).float()
        for function in (math.cos, math.sin)
    ]

    found = rotary.at(positions)

    assert torch.equal(found.cos[:, 0, :8].flatten(), expected[0])
    assert torch.equal(found.signed_sin[:, 0, 8:].flatten(), expected[1])
    assert not torch.equal(torch.tensor(angles).cos(), expected[0])  # float32 would not do


def test_the_rotation_has_the_type_of_the_model(tmp_path):
    FAMILIES["llama"]().save_pretrained(tmp_path)
    rotary = make_rotary(read_hf_config(tmp_path / "config.json"), torch.bfloat16)
    assert rotary.at(POSITIONS).cos.dtype == torch.bfloat16
