import pytest
import torch
from torch.nn import functional

from ranks.layers.linear import Linear, RowParallelLinear
from ranks.layers.mlp import Activation, GatedMlp, activate
from ranks.shards import NoCollective


@pytest.fixture(params=[1, 2, 3, 4])
def num_threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_it_is_the_gated_product_of_the_definition():
    x = torch.randn(8, 32)
    gate, up, down = torch.randn(48, 32), torch.randn(48, 32), torch.randn(32, 48)
    mlp = GatedMlp(Linear(gate), Linear(up), RowParallelLinear([down[:, :32], down[:, 32:]], None))
    expected = functional.linear(functional.silu(x @ gate.T) * (x @ up.T), down)
    torch.testing.assert_close(mlp(x, NoCollective()), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [16, 112, 800, 1536, 4304])
@pytest.mark.parametrize("activation", Activation)
def test_an_activation_gives_a_row_the_same_bits_wherever_it_lies(width, num_threads, activation):
    x = torch.randn(512, width, generator=torch.Generator().manual_seed(1)) * 3
    torch.set_num_threads(1)
    expected = torch.cat([activate(part.clone(), activation) for part in x.split(4)])
    torch.set_num_threads(num_threads)
    for rows in (4, 8, 12, 20, 44, 100, 300, 512):
        assert torch.equal(activate(x[:rows].clone(), activation), expected[:rows])
