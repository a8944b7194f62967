"""Ranks of one host add within the library's own step: one call, and the bits of one rank."""

import threading

import pytest
import torch
from gguf.constants import GGMLQuantizationType

from ranks.errors import FellowLost
from ranks.models.native_llama import NativeLlama
from ranks.native.library import NativeEngine, open_library
from tests.support.shared_ranks import has_library, on_shared_ranks
from tests.support.tiny_checkpoints import write_gguf
from tests.support.tiny_worlds import Lane, World, load_models, scattered_table

pytestmark = pytest.mark.skipif(not has_library(), reason="there is no native library here")

NUM_BLOCKS, BLOCK_SIZE = 128, 16
PROMPTS = [[7, 290, 3, 3, 118, 42, 250, 9, 77, 31, 5], [250] * 40, list(range(100, 133))]
KINDS = {"Q4_1": ("llama", "llama_grouped"), "Q8_0": ("qwen2", "qwen2_grouped")}


class NoPython:
    """A shared group that adds nothing from Python."""

    def __init__(self, group):
        self.lend_exchange = group.lend_exchange
        self.gather_columns = group.gather_columns
        self.broadcast_ids = group.broadcast_ids

    def all_reduce(self, tensor):
        raise AssertionError("a half of a layer was added from Python")


@pytest.fixture(scope="module", params=KINDS)
def path(request, tmp_path_factory):
    architecture, family = KINDS[request.param]
    path = tmp_path_factory.mktemp("shared") / "tiny.gguf"
    stored = GGMLQuantizationType[request.param]
    write_gguf(path, stored, architecture=architecture, family=family)
    return path


def lanes():
    return [
        Lane(number, prompt, scattered_table(number, len(PROMPTS), NUM_BLOCKS))
        for number, prompt in enumerate(PROMPTS)
    ]


def rounds(step):
    """All prompts in one step, and three decodes; the logits of each."""
    found, running = [], lanes()
    for number in range(4):
        found.append(step([lane.rows() for lane in running]))
        for at, lane in enumerate(running):
            lane.token_ids.append((number * 7 + at) % 300)
    return found


def with_threads(model, num_threads):
    assert isinstance(model, NativeLlama)
    parts = model.parts
    model._engine = NativeEngine(open_library(), parts.shape, parts.layers, num_threads=num_threads)
    return model


def on_two_ranks(models, act):
    """`act(step, rank, group)` on each rank, whose `step` runs rows of lanes."""

    def live(group, rank):
        model, kv = models[rank], models[rank].new_kv_store(NUM_BLOCKS, BLOCK_SIZE)

        def step(rows):
            logits = model.forward(rows, kv, NoPython(group))
            return None if logits is None else logits.clone()

        return act(step, rank)

    return on_shared_ranks(live)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_two_ranks_that_share_memory_give_the_bits_of_one(path, num_threads):
    alone = rounds(World(load_models(path, 1, torch.int8), NUM_BLOCKS, BLOCK_SIZE).step)
    models = [with_threads(model, num_threads) for model in load_models(path, 2, torch.int8)]
    found, nothing = on_two_ranks(models, lambda step, _rank: rounds(step))
    assert nothing == [None] * 4
    assert all(torch.equal(one, other) for one, other in zip(found, alone, strict=True))


def test_waiting_for_the_other_rank_is_a_part_of_the_step(path):
    models = load_models(path, 2, torch.int8)
    on_two_ranks(models, lambda step, _rank: rounds(step))
    assert all(model.parts_ns()["exchange"] > 0 for model in models)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_fellow_that_leaves_ends_the_step_by_name_and_every_step_after_it(path, num_threads):
    models = [with_threads(model, num_threads) for model in load_models(path, 2, torch.int8)]
    has_run = threading.Event()

    def act(step, rank):
        rows = lanes()[0].rows()
        step([rows])
        if rank == 1:
            assert has_run.wait(10)
            return
        has_run.set()
        for _ in range(2):
            with pytest.raises(FellowLost, match="rank 1 has left"):
                step([rows])

    on_two_ranks(models, act)
