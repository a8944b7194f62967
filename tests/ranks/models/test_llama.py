"""The family against `transformers`, and the law that a row's bits are its own."""

import random
from pathlib import Path

import pytest
import torch

from ranks.models.llama import describe_geometry
from ranks.models.registry import open_checkpoint
from ranks.shards import cut_shards
from tests.support.tiny_checkpoints import FAMILIES, VOCAB_SIZE, make_reference, write_hf_checkpoint
from tests.support.tiny_worlds import Lane, World, decode_greedily, load_models, scattered_table

NUM_BLOCKS = 320


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Each family's checkpoint, written once."""
    root = tmp_path_factory.mktemp("checkpoints")
    for family in FAMILIES:
        write_hf_checkpoint(root / family, family)
    return root


@pytest.fixture(scope="module")
def llama_models(folders):
    return {size: load_models(folders / "llama", size) for size in (1, 2)}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_prompt(length, seed=0):
    chooser = random.Random(f"{length}/{seed}")
    return [chooser.randrange(VOCAB_SIZE) for _ in range(length)]


def reference_greedy(model, prompt, count):
    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_greedy_tokens_equal_transformers(folders: Path, family, world_size):
    reference = make_reference(family)
    prompt = make_prompt(21)
    world = World(load_models(folders / family, world_size), NUM_BLOCKS, 16)
    with torch.inference_mode():
        expected = reference(torch.tensor([prompt])).logits[0, -1]

    lane = Lane(0, prompt, scattered_table(0, 1, NUM_BLOCKS))
    logits = world.step([lane.rows()])[0]

    assert logits.shape == (VOCAB_SIZE,)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, expected, rtol=2e-5, atol=2e-5 * expected.abs().max().item())
    assert decode_greedily(world, prompt, 12) == reference_greedy(reference, prompt, 12)


def logits_alone(models, lanes_ids):
    """Each lane alone, prompt in one step: the reference of all laws below."""
    result = []
    for number, ids in enumerate(lanes_ids):
        world = World(models, NUM_BLOCKS, 16)
        table = scattered_table(number, len(lanes_ids), NUM_BLOCKS)
        result.append(world.step([Lane(number, ids, table).rows()])[0])
    return result


LENGTHS = (1, 2, 3, 5, 17, 64, 65, 130, 200, 260, 300, 390)


@pytest.fixture(scope="module")
def prompts():
    return [make_prompt(length, seed=length) for length in LENGTHS]


@pytest.fixture(scope="module")
def alone(llama_models, prompts):
    torch.set_num_threads(1)
    return logits_alone(llama_models[1], prompts)


def run_in_chunks(world, prompts, chooser, num_lanes):
    """Run all lanes to their ends in steps of random chunks; each lane's last logits."""
    lanes = [
        Lane(number, ids, scattered_table(number, num_lanes, world.stores[0].num_blocks))
        for number, ids in enumerate(prompts)
    ]
    found = {}
    while len(found) < len(lanes):
        waiting = [lane for lane in lanes if lane.num_computed < len(lane.token_ids)]
        chosen = chooser.sample(waiting, chooser.randint(1, len(waiting)))
        rows = [lane.rows(chooser.choice((1, 2, 7, 33, 150))) for lane in chosen]
        logits = world.step(rows)
        drawing = [row.lane_id for row in rows if row.num_draws]
        assert logits.shape[0] == len(drawing)
        found.update(zip(drawing, logits, strict=True))
    return [found[number] for number in range(len(lanes))]


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("seed", range(2))
def test_a_row_has_the_same_bits_alone_and_in_any_batch_and_chunking(
    llama_models, prompts, alone, seed, world_size, num_threads
):
    torch.set_num_threads(num_threads)
    world = World(llama_models[world_size], NUM_BLOCKS, 16)

    found = run_in_chunks(world, prompts, random.Random(seed), len(prompts))

    for length, one, other in zip(LENGTHS, alone, found, strict=True):
        assert torch.equal(one, other), f"prompt of {length} tokens"


@pytest.mark.parametrize("family", ["qwen3", "qwen2_window", "llama_biased", "llama_one_kv"])
def test_families_with_more_parts_keep_the_law_too(folders, family):
    prompts = [make_prompt(length, seed=length) for length in (1, 9, 33, 140)]
    one, two = (load_models(folders / family, size) for size in (1, 2))
    expected = logits_alone(one, prompts)

    for models in (one, two):
        found = run_in_chunks(World(models, NUM_BLOCKS, 16), prompts, random.Random(1), 4)
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize("block_size", [1, 8, 64, 128])
def test_the_block_size_does_not_change_bits(llama_models, prompts, alone, block_size):
    num_blocks = 1024 // block_size
    for number in (4, 11):
        world = World(llama_models[1], num_blocks, block_size)
        table = scattered_table(0, 1, num_blocks)
        logits = world.step([Lane(0, prompts[number], table).rows()])[0]
        assert torch.equal(logits, alone[number])


def test_what_a_block_held_before_does_not_show(llama_models, prompts, alone):
    world = World(llama_models[1], NUM_BLOCKS, 16)
    world.stores[0]._data[:, :, :, 1:] = float("nan")

    found = run_in_chunks(world, prompts, random.Random(5), len(prompts))

    assert all(torch.equal(one, other) for one, other in zip(alone, found, strict=True))


def test_a_lane_of_nan_harms_no_neighbour(folders, prompts):
    models = load_models(folders / "llama", 1)
    expected = logits_alone(models, prompts[3:6])
    used = {token_id for ids in prompts[3:6] for token_id in ids}
    poisoned_id = next(one for one in range(VOCAB_SIZE) if one not in used)
    with torch.inference_mode():
        models[0]._parts.embedding._table._weight[poisoned_id] = float("nan")
    world = World(models, NUM_BLOCKS, 16)

    found = run_in_chunks(world, [*prompts[3:6], [poisoned_id] * 40], random.Random(2), 4)

    assert torch.isnan(found[3]).all()
    assert all(torch.equal(one, other) for one, other in zip(expected, found[:3], strict=True))


def test_a_step_that_draws_nothing_gives_no_logits(llama_models):
    for models in llama_models.values():
        world = World(models, NUM_BLOCKS, 16)
        lane = Lane(0, make_prompt(9), scattered_table(0, 1, NUM_BLOCKS))
        assert world.step([lane.rows(4)]).shape == (0, VOCAB_SIZE)


def test_logits_come_in_the_order_of_the_lanes_that_draw(llama_models, prompts, alone):
    world = World(llama_models[1], NUM_BLOCKS, 16)
    lanes = [Lane(n, prompts[n], scattered_table(n, 6, NUM_BLOCKS)) for n in (5, 2, 4)]

    logits = world.step([lanes[0].rows(), lanes[1].rows(1), lanes[2].rows()])

    assert torch.equal(logits, torch.stack([alone[5], alone[4]]))


def test_the_kv_bytes_of_a_block_are_what_the_store_takes(llama_models):
    for models in llama_models.values():
        for model in models:
            store = model.new_kv_store(9, 16)
            assert store.num_bytes == 10 * model.kv_bytes_per_block(16)


def test_the_geometry_names_the_cut(folders):
    config = open_checkpoint(folders / "llama").config
    shared = open_checkpoint(folders / "llama_one_kv").config
    one = describe_geometry(config, cut_shards(3, rank=0, world_size=1))
    two = describe_geometry(config, cut_shards(3, rank=1, world_size=2))
    assert one == "heads 4+2 of 6, kv 2+1 of 3, this rank holds shard 0 and 1"
    assert two == "heads 4+2 of 6, kv 2+1 of 3, this rank holds shard 1"
    words = describe_geometry(shared, cut_shards(6, rank=1, world_size=2))
    assert words == "heads 3+3 of 6, kv 1+1 of 1, this rank holds shard 1"


def test_a_step_without_rows_gives_no_logits(llama_models):
    for models in llama_models.values():
        assert World(models, NUM_BLOCKS, 16).step([]).shape == (0, VOCAB_SIZE)
