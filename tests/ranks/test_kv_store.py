import pytest
import torch

from ranks.errors import OutOfRoom
from ranks.kv_store import KvStore


def make_store(num_blocks=5, block_size=4, like=None):
    return KvStore(
        num_layers=2, num_kv_heads=3, head_dim=8, num_blocks=num_blocks, block_size=block_size,
        like=torch.empty(0) if like is None else like,
    )  # fmt: skip


def test_what_is_written_is_gathered_in_the_order_of_the_blocks():
    store = make_store()
    keys, values = torch.randn(3, 3, 8), torch.randn(3, 3, 8)
    slots = torch.tensor([3 * 4 + 0, 3 * 4 + 1, 1 * 4 + 2])

    store.write(1, slots, keys, values)

    found_keys, found_values = store.gather(1, torch.tensor([1, 3, 0]))
    assert found_keys.shape == (3, 12, 8)
    for at, row in ((4, 0), (5, 1), (2, 2)):
        assert torch.equal(found_keys[:, at], keys[row])
        assert torch.equal(found_values[:, at], values[row])
    assert found_keys[:, 8:].abs().sum() == 0
    assert store.gather(0, torch.tensor([1, 3]))[0].abs().sum() == 0


def test_an_opened_block_is_zero_in_all_layers_and_others_are_not_touched():
    store = make_store()
    store._data.fill_(float("nan"))

    store.open_blocks(torch.tensor([2, 5]))

    for layer in range(2):
        for part in store.gather(layer, torch.tensor([2, 5])):
            assert part.abs().sum() == 0
        assert torch.isnan(store.gather(layer, torch.tensor([1, 3, 4]))[0]).all()


def test_the_master_may_name_all_blocks_beside_the_empty_one():
    store = make_store(num_blocks=5)
    assert store._data.shape[3] == 6
    assert store.num_bytes == 2 * 2 * 3 * 6 * 4 * 8 * 4


def test_the_type_is_that_of_the_model():
    assert make_store(like=torch.empty(0, dtype=torch.bfloat16))._data.dtype == torch.bfloat16


def test_a_pool_that_does_not_fit_is_out_of_room():
    with pytest.raises(OutOfRoom, match="1000000000000 KV blocks"):
        make_store(num_blocks=10**12)


def test_a_block_size_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="block_size is 24"):
        make_store(block_size=24)
