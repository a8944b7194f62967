import pytest
import torch
from torch.nn import functional

from ranks.layers.linear import Linear, RowParallelLinear, are_rows_exact
from ranks.shards import NoCollective
from ranks.tiles import row_multiple

CPU = torch.device("cpu")


@pytest.fixture(params=[1, 2, 3])
def num_threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def random(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_a_product_is_that_of_torch():
    x, weight, bias = random(8, 96), random(301, 96, seed=2), random(301, seed=3)
    torch.testing.assert_close(Linear(weight)(x), functional.linear(x, weight))
    torch.testing.assert_close(Linear(weight, bias)(x), functional.linear(x, weight, bias))


def test_types_that_are_not_packed_work_too():
    x, weight = random(8, 96).bfloat16(), random(301, 96, seed=2).bfloat16()
    assert torch.equal(Linear(weight)(x), functional.linear(x, weight))


@pytest.mark.parametrize(
    ("width", "outputs"),
    [
        (576, 960),
        (576, 640),
        (384, 576),
        (192, 576),
        (576, 1536),
        (768, 576),
        (96, 301),
        (2048, 64),
    ],
)
def test_a_row_has_the_same_bits_among_any_number_of_rows_and_threads(width, outputs, num_threads):
    x, linear = random(512, width), Linear(random(outputs, width, seed=2))
    torch.set_num_threads(1)
    whole = linear(x)
    torch.set_num_threads(num_threads)
    step = row_multiple(CPU)
    counts = [*range(step, 70, step), *range(step * 20, 513, step * 20)]
    assert [rows for rows in counts if not torch.equal(linear(x[:rows]), whole[:rows])] == []


def test_a_row_has_the_same_bits_at_any_place():
    x, linear = random(64, 576), Linear(random(960, 576, seed=2))
    order = torch.randperm(64, generator=torch.Generator().manual_seed(3))
    assert torch.equal(linear(x[order]), linear(x)[order])


def test_columns_have_the_same_bits_merged_or_apart():
    x, weight = random(16, 576), random(960, 576, seed=2)
    apart = torch.cat([Linear(weight[:640])(x), Linear(weight[640:])(x)], dim=1)
    assert torch.equal(apart, Linear(weight)(x))


def test_the_self_check_holds_on_this_machine(num_threads):
    assert are_rows_exact(CPU, torch.float32)


def test_the_self_check_sees_a_product_whose_rows_depend_on_their_number(monkeypatch):
    """As a library would that adds in another order for many rows."""
    plain = Linear.__call__

    def odd(self, x):
        return plain(self, x) * (1 + 1e-6 * (x.shape[0] > 64))

    monkeypatch.setattr(Linear, "__call__", odd)
    assert not are_rows_exact(CPU, torch.float32)


class Sum:
    """Adds another rank's share, as a collective of two does."""

    def __init__(self, other):
        self.other = other

    def all_reduce(self, tensor):
        return self.other + tensor


def test_one_rank_with_both_shards_and_two_with_one_each_give_the_same_bits():
    x, weight, bias = random(16, 576), random(576, 576, seed=2), random(576, seed=3)
    shards = [weight[:, :384], weight[:, 384:]]
    together = RowParallelLinear(shards, bias)(x, NoCollective())

    first = RowParallelLinear(shards[:1], None)(x[:, :384].clone(), NoCollective())
    second = RowParallelLinear(shards[1:], bias)(x[:, 384:].clone(), Sum(first))

    assert torch.equal(together, second)
    torch.testing.assert_close(together, functional.linear(x, weight, bias), rtol=1e-4, atol=1e-4)
