"""A quantized model gives each row the same bits, whatever runs it and whatever runs beside it."""

import time
from dataclasses import replace

import pytest
import torch
from gguf.constants import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st

from ranks.models.native_llama import NativeLlama
from ranks.models.step_memory import StepLimits
from ranks.native.library import PART_NAMES
from tests.support.native_kernels import usable_sets
from tests.support.native_models import in_library, in_numpy
from tests.support.tiny_checkpoints import VOCAB_SIZE, write_gguf
from tests.support.tiny_worlds import Lane, World, load_world, scattered_table

PROMPT = [7, 290, 3, 3, 118, 42, 250, 9, 77, 31, 5, 164, 200, 13, 66, 88, 101, 19, 2, 300, 1]
OTHERS = [[9, 8, 7], [250] * 40, list(range(100, 133))]
KINDS = {
    "Q4_1": ("llama", "llama_grouped"),
    "Q4_0": ("qwen3", "qwen3_grouped"),
    "Q8_0": ("qwen2", "qwen2_grouped"),
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Kind → (path, a reference of the file's very values)."""
    folder = tmp_path_factory.mktemp("quantized")
    found = {}
    for kind, (architecture, family) in KINDS.items():
        path = folder / f"{kind}.gguf"
        stored = GGMLQuantizationType[kind]
        found[kind] = (path, write_gguf(path, stored, architecture=architecture, family=family))
    return found


@pytest.fixture(scope="module")
def models(checkpoints):
    """Kind → the model on one rank."""
    return {
        kind: load_world(path, 1, dtype=torch.int8).models[0]
        for kind, (path, _) in checkpoints.items()
    }


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def model(models, kind):
    return models[kind]


def world_of(model, block_size=16):
    return World([model], num_blocks=128, block_size=block_size)


def run_alone(world, token_ids, chunk=None):
    """The logits of the last position, computed in chunks."""
    lane = Lane(0, token_ids, scattered_table(0, 2, 128))
    logits = None
    while lane.num_computed < len(token_ids):
        logits = world.step([lane.rows(chunk)])
    assert logits is not None
    return logits[0]


def decode(world, prompt, count):
    """Logits of each of `count` steps, greedily."""
    lane = Lane(0, prompt, scattered_table(0, 2, 100))
    found = []
    for _ in range(count):
        found.append(world.step([lane.rows()])[0])
        lane.token_ids.append(int(found[-1].argmax()))
    return torch.stack(found)


def test_it_computes_with_int8_and_says_how(model):
    assert model.dtype == torch.int8
    assert model.are_rows_exact()
    assert model.products.startswith("native-")
    assert model.geometry.startswith("heads 4+2 of 6, kv 2+1 of 3")


def test_logits_are_near_those_of_the_files_very_values(model, checkpoints, kind):
    with torch.inference_mode():
        expected = checkpoints[kind][1](torch.tensor([PROMPT])).logits[0, -1].double()
    logits = run_alone(world_of(model), PROMPT).double()
    shares = expected.log_softmax(0)
    divergence = (shares.exp() * (shares - logits.log_softmax(0))).sum()
    assert logits.shape == (VOCAB_SIZE,)
    assert divergence < 0.01


@pytest.mark.parametrize("instruction_set", [*usable_sets(), "numpy"])
def test_every_engine_gives_the_same_bits(model, instruction_set):
    expected = decode(world_of(model), PROMPT, 6)
    other = in_numpy(model) if instruction_set == "numpy" else in_library(model, instruction_set)
    assert torch.equal(decode(world_of(other), PROMPT, 6), expected)


@pytest.mark.skipif(not usable_sets(), reason="numpy has no threads of its own here")
@pytest.mark.parametrize("num_threads", [2, 3, 7])
def test_any_number_of_threads_gives_the_same_bits(model, num_threads):
    expected = decode(world_of(model), PROMPT, 6)
    other = in_library(model, usable_sets()[0], num_threads)
    assert torch.equal(decode(world_of(other), PROMPT, 6), expected)


@pytest.mark.parametrize("chunk", [1, 3, 8, 20])
def test_a_prompt_has_the_same_bits_however_it_is_cut(model, chunk):
    token_ids = PROMPT * 3
    expected = run_alone(world_of(model), token_ids)
    assert torch.equal(run_alone(world_of(model), token_ids, chunk), expected)


@pytest.mark.parametrize("block_size", [1, 8, 64])
def test_a_row_has_the_same_bits_in_blocks_of_any_size(model, block_size):
    expected = run_alone(world_of(model), PROMPT)
    assert torch.equal(run_alone(world_of(model, block_size), PROMPT, 4), expected)


def test_two_ranks_give_the_bits_of_one(checkpoints, kind):
    path, _ = checkpoints[kind]
    alone = decode(load_world(path, 1, dtype=torch.int8), PROMPT, 5)
    assert torch.equal(decode(load_world(path, 2, dtype=torch.int8), PROMPT, 5), alone)


def test_two_ranks_of_numpy_give_the_bits_of_one(checkpoints):
    path, _ = checkpoints["Q4_1"]
    world = load_world(path, 2, dtype=torch.int8)
    expected = decode(load_world(path, 1, dtype=torch.int8), PROMPT, 3)
    for model in world.models:
        assert isinstance(model, NativeLlama)
        model._engine = in_numpy(model)._engine
    assert torch.equal(decode(world, PROMPT, 3), expected)


def test_a_window_hides_what_lies_before_it(models):
    model = models["Q4_1"]
    layers = tuple(replace(layer, window=9) for layer in model._parts.layers)
    windowed = NativeLlama.__new__(NativeLlama)
    windowed.__dict__ = model.__dict__ | {"_parts": replace(model._parts, layers=layers)}
    expected = decode(world_of(in_numpy(windowed)), PROMPT * 2, 3)
    assert not torch.equal(expected, decode(world_of(model), PROMPT * 2, 3))
    for instruction_set in usable_sets():
        other = world_of(in_library(windowed, instruction_set))
        assert torch.equal(decode(other, PROMPT * 2, 3), expected)


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_a_lane_has_the_same_bits_beside_any_others(models, data):
    model = models[data.draw(st.sampled_from(sorted(KINDS)))]
    prompts = [PROMPT, *OTHERS]
    alone = [run_alone(world_of(model), prompt) for prompt in prompts]
    world = world_of(model)
    world.stores[0].pool.fill_(float("nan"))  # what other lanes may have left
    lanes = [Lane(i, prompt, scattered_table(i, 4, 64)) for i, prompt in enumerate(prompts)]
    found = {}
    while len(found) < len(lanes):
        left = [lane for lane in lanes if lane.lane_id not in found]
        chosen = data.draw(st.permutations(left))[: data.draw(st.integers(1, len(left)))]
        rows = [lane.rows(data.draw(st.integers(1, 40))) for lane in chosen]
        logits = iter(world.step(rows))
        found |= {row.lane_id: next(logits) for row in rows if row.num_draws}
    for lane in lanes:
        assert torch.equal(found[lane.lane_id], alone[lane.lane_id])


@pytest.mark.skipif(not usable_sets(), reason="numpy counts nothing")
@pytest.mark.parametrize("world_size", [1, 2])
def test_the_parts_of_a_step_are_counted_anew_in_each(checkpoints, world_size):
    world = load_world(checkpoints["Q4_1"][0], world_size, dtype=torch.int8)
    lane = Lane(0, PROMPT, scattered_table(0, 1, 128))
    parts: dict[str, int] = {}
    for _ in range(3):
        began_ns = time.perf_counter_ns()
        world.step([lane.rows(7)])
        took_ns = time.perf_counter_ns() - began_ns
        parts = world.models[0].parts_ns()
        assert tuple(parts) == PART_NAMES
        named = ["norm", "products", "rotate", "attention"]
        assert all(parts[name] > 0 for name in named)
        assert sum(parts.values()) <= took_ns
    assert parts["head"] > 0


def test_a_step_that_draws_nothing_gives_no_logits(model):
    lane = Lane(0, PROMPT, scattered_table(0, 1, 8))
    assert world_of(model).step([lane.rows(4)]).shape == (0, VOCAB_SIZE)


def test_keys_and_values_take_two_bytes_each(model):
    store = model.new_kv_store(10, 16)
    assert model.kv_bytes_per_block(16) * 11 == store.num_bytes
    limits = StepLimits(max_step_tokens=64, num_lanes=4)
    assert model.step_bytes(limits) > 64 * 96 * 4 * 6
    assert model.step_bytes_per_block(16, limits) > 0


def test_stages_are_counted_as_they_are_run_on_one_rank_and_on_two(model, checkpoints, kind):
    for world in (world_of(model), load_world(checkpoints[kind][0], 2, dtype=torch.int8)):
        for one in world.models:
            assert one.num_stages() >= 0
        before = [one.num_stages() for one in world.models]
        run_alone(world, [1, 2, 3])
        once = [one.num_stages() - was for one, was in zip(world.models, before, strict=True)]
        assert all(rise > 2 * model.config.num_layers for rise in once)
        run_alone(world, [1, 2, 3])
        twice = [one.num_stages() - was for one, was in zip(world.models, before, strict=True)]
        assert twice == [2 * rise for rise in once]


def test_a_native_model_runs_no_pass_in_slices_and_takes_no_images(model):
    assert model.images is None
    assert model.num_layers == 2
    for refuse in (model.begin, model.run_layers, model.finish):
        with pytest.raises(ValueError, match="runs a step whole"):
            refuse()
    with pytest.raises(ValueError, match="takes no images"):
        model.encode_image(torch.zeros(8, 8, 3, dtype=torch.uint8))
    with pytest.raises(ValueError, match="takes no images"):
        model.use_encoder(None)


def test_shards_that_share_a_kv_head_give_the_same_bits_on_one_rank_and_two(tmp_path):
    path = tmp_path / "one_kv.gguf"
    reference = write_gguf(
        path, GGMLQuantizationType.Q8_0, architecture="qwen3", family="qwen3_one_kv"
    )
    found = [
        load_world(path, size, dtype=torch.int8).step([Lane(0, PROMPT, list(range(8))).rows()])
        for size in (1, 2)
    ]
    assert torch.equal(*found)
    with torch.inference_mode():
        expected = reference(torch.tensor([PROMPT])).logits[0, -1]
    assert torch.nn.functional.cosine_similarity(found[0][0], expected, dim=0) > 0.99
