"""What a family keeps of a prefix: as large as the pool's rows of it, and in their order."""

import pytest
import torch

from ranks.models.state import kv_state, name_exact_layout, name_torch_layout

SIZES = {"num_layers": 3, "num_kv_heads": 2, "head_dim": 8, "dtype": torch.float16}


def test_a_state_has_keys_and_values_of_each_layer_in_the_order_of_the_pool():
    names = [tensor.name for tensor in kv_state(**SIZES)]
    assert names == [
        "layers.0.keys", "layers.0.values", "layers.1.keys", "layers.1.values",
        "layers.2.keys", "layers.2.values",
    ]  # fmt: skip


@pytest.mark.parametrize("num_blocks", [1, 10])
def test_only_the_number_of_blocks_varies(num_blocks):
    for tensor in kv_state(**SIZES):
        assert tensor.shape(num_blocks, block_size=16) == (2, num_blocks, 16, 8)
        assert tensor.num_bytes(num_blocks, block_size=16) == 2 * num_blocks * 16 * 8 * 2


def test_layouts_that_may_differ_in_a_bit_have_different_names():
    cpu = torch.device("cpu")
    names = {
        name_exact_layout(torch.float16),
        name_torch_layout(torch.float16, products="plain", device=cpu),
        name_torch_layout(torch.float32, products="plain", device=cpu),
        name_torch_layout(torch.float32, products="packed", device=cpu),
    }
    assert len(names) == 4
