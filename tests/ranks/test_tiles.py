import pytest
import torch
from torch.nn import functional

from ranks.tiles import can_pack, check_block_size, pad_count, product_name, row_multiple

CPU = torch.device("cpu")


def test_counts_are_rounded_up():
    assert [pad_count(count, 4) for count in (0, 1, 4, 5)] == [0, 4, 4, 8]


@pytest.mark.parametrize("block_size", [1, 2, 16, 32, 64, 128, 192])
def test_block_sizes_that_divide_the_tile_or_are_multiples_of_it_are_good(block_size):
    check_block_size(block_size)


@pytest.mark.parametrize("block_size", [-1, 0, 3, 24, 96])
def test_other_block_sizes_are_refused_with_the_number(block_size):
    with pytest.raises(ValueError, match=f"block_size is {block_size}"):
        check_block_size(block_size)


def test_only_float32_on_the_cpu_is_packed():
    assert not can_pack(CPU, torch.bfloat16)
    assert not can_pack(torch.device("meta"), torch.float32)
    assert product_name(CPU, torch.bfloat16) == product_name(torch.device("cuda"), torch.float32)
    assert product_name(CPU, torch.bfloat16) == "plain"
    assert (product_name(CPU, torch.float32) == "packed") == can_pack(CPU, torch.float32)


def test_nothing_is_padded_where_nothing_is_promised():
    assert row_multiple(torch.device("cuda")) == 1


def test_rows_are_padded_to_whole_tiles_on_the_cpu():
    assert row_multiple(CPU) % 4 == 0


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize(("width", "outputs"), [(576, 960), (192, 576), (768, 576), (96, 301)])
def test_the_fall_back_product_keeps_the_law_from_four_rows_a_thread_on(
    width, outputs, num_threads
):
    """What `row_multiple` promises where nothing is packed: see ADR 2."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, width, generator=generator)
    weight = torch.randn(outputs, width, generator=generator)
    whole = functional.linear(x, weight)
    counts = range(4 * num_threads, 65, 4 * num_threads)

    unequal = [
        rows
        for rows in counts
        if not torch.equal(functional.linear(x[:rows], weight), whole[:rows])
    ]

    torch.set_num_threads(before)
    assert unequal == []
