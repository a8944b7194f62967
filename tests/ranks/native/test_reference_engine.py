"""The engine in numpy keeps keys and values where the library keeps them."""

import pytest
import torch
from gguf.constants import GGMLQuantizationType

from tests.support.native_kernels import usable_sets
from tests.support.native_models import in_library, in_numpy
from tests.support.tiny_checkpoints import write_gguf
from tests.support.tiny_worlds import Lane, World, load_models


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("quantized") / "model.gguf"
    write_gguf(path, GGMLQuantizationType.Q4_0)
    return load_models(path, 1, torch.int8)[0]


def test_numpy_goes_on_where_the_library_stopped(model):
    lane = Lane(0, list(range(1, 40)), [3, 0, 2])
    first = World([model], num_blocks=4, block_size=16)
    first.step([lane.rows(21)])
    second = World([in_numpy(model)], num_blocks=4, block_size=16)
    second.stores = first.stores
    continued = second.step([lane.rows()])
    whole = World([in_numpy(model)], num_blocks=4, block_size=16)
    expected = whole.step([Lane(0, lane.token_ids, [3, 0, 2]).rows()])
    assert torch.equal(continued, expected)


@pytest.mark.parametrize("instruction_set", usable_sets())
def test_both_leave_the_same_pool(model, instruction_set):
    pools = []
    for one in (in_numpy(model), in_library(model, instruction_set, 2)):
        world = World([one], num_blocks=4, block_size=16)
        world.step([Lane(0, list(range(1, 40)), [3, 0, 2]).rows()])
        pools.append(world.stores[0].pool)
    assert torch.equal(*pools)
