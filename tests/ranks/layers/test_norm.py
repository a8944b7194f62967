import pytest
import torch

from ranks.layers.norm import RmsNorm


def test_it_is_the_norm_of_the_definition():
    x, weight = torch.randn(5, 96), torch.rand(96)
    expected = x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3) * weight
    torch.testing.assert_close(RmsNorm(weight, 1e-3)(x), expected)


def test_other_types_are_normed_in_float32():
    x, weight = torch.randn(5, 96).bfloat16() * 100, torch.rand(96).bfloat16()
    expected = RmsNorm(torch.ones(96), 1e-6)(x.float()).bfloat16() * weight
    assert torch.equal(RmsNorm(weight, 1e-6)(x), expected)


@pytest.mark.parametrize("width", [16, 96, 100, 576])
def test_a_row_has_the_same_bits_alone(width):
    x, norm = torch.randn(40, width), RmsNorm(torch.rand(width), 1e-6)
    whole = norm(x)
    assert all(torch.equal(norm(x[row : row + 1])[0], whole[row]) for row in range(40))
