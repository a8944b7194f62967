"""Gemma 3 against `transformers`, and the law that a row's bits are its own."""

import random

import pytest
import torch
from gguf.constants import GGMLQuantizationType

from ranks.errors import BadCheckpoint
from ranks.models.registry import choose_products, open_checkpoint
from tests.support.gemma_gguf import write_gemma_gguf
from tests.support.tiny_gemma3 import VOCAB_SIZE, make_gemma3_text
from tests.support.tiny_worlds import CPU, Lane, World, decode_greedily, load_models
from tests.support.tiny_worlds import scattered_table as table_of

NUM_BLOCKS = 160
CHANGES = {
    "shared_kv": {},
    "window_beyond": {"sliding_window": 2048},
    "short_window": {"sliding_window": 5, "num_attention_heads": 6, "num_key_value_heads": 3},
    "biased": {"attention_bias": True, "tie_word_embeddings": False},
    "plain_rope": {"rope_parameters": None, "layer_types": None},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    for name, changes in CHANGES.items():
        make_gemma3_text(**changes).save_pretrained(root / name)
    return root


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


def expect_reference(models, reference, tolerance=2e-5):
    prompt = make_prompt(40)
    world = World(models, NUM_BLOCKS, 16)
    with torch.inference_mode():
        expected = reference(torch.tensor([prompt])).logits[0, -1]
    logits = world.step([Lane(0, prompt, table_of(0, 1, NUM_BLOCKS)).rows()])[0]
    biggest = expected.abs().max().item()
    torch.testing.assert_close(logits, expected, rtol=tolerance, atol=tolerance * biggest)
    assert decode_greedily(world, prompt, 12) == reference_greedy(reference, prompt, 12)


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("name", CHANGES)
def test_logits_and_greedy_tokens_equal_transformers(folders, name, world_size):
    expect_reference(load_models(folders / name, world_size), make_gemma3_text(**CHANGES[name]))


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_row_has_the_same_bits_alone_and_in_any_batch_and_chunking(
    folders, world_size, num_threads
):
    prompts = [make_prompt(length, length) for length in (1, 3, 40, 130, 200)]
    models = load_models(folders / "shared_kv", 1)
    alone = [
        World(models, NUM_BLOCKS, 16).step([Lane(0, one, table_of(0, 1, NUM_BLOCKS)).rows()])[0]
        for one in prompts
    ]
    torch.set_num_threads(num_threads)
    models = load_models(folders / "shared_kv", world_size)

    found, chooser, world = {}, random.Random(world_size), World(models, NUM_BLOCKS, 16)
    lanes = [
        Lane(number, one, table_of(number, len(prompts), NUM_BLOCKS))
        for number, one in enumerate(prompts)
    ]
    while len(found) < len(lanes):
        waiting = [lane for lane in lanes if lane.num_computed < len(lane.token_ids)]
        chosen = chooser.sample(waiting, chooser.randint(1, len(waiting)))
        rows = [lane.rows(chooser.choice((1, 7, 33, 150))) for lane in chosen]
        drawing = [row.lane_id for row in rows if row.num_draws]
        found.update(zip(drawing, world.step(rows), strict=True))

    assert all(torch.equal(one, found[number]) for number, one in enumerate(alone))


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_a_gguf_gives_what_its_very_values_give(tmp_path, kind, world_size):
    path = tmp_path / "gemma.gguf"
    reference = write_gemma_gguf(path, GGMLQuantizationType[kind])
    expect_reference(load_models(path, world_size), reference)


def test_half_the_bits_stay_near_the_reference(folders):
    """The order of casts is that of the reference, in bfloat16 as on CUDA."""
    prompt = make_prompt(40)
    reference = make_gemma3_text().to(torch.bfloat16)
    world = World(load_models(folders / "shared_kv", 1, torch.bfloat16), NUM_BLOCKS, 16)
    with torch.inference_mode():
        expected = reference(torch.tensor([prompt])).logits[0, -1].float()
    found = world.step([Lane(0, prompt, table_of(0, 1, NUM_BLOCKS)).rows()])[0]
    assert torch.nn.functional.cosine_similarity(found, expected, dim=0) > 0.999


def test_a_scale_of_embeddings_is_rounded_to_the_type_of_the_model(folders):
    for dtype in (torch.float32, torch.bfloat16):
        model = load_models(folders / "shared_kv", 1, dtype)[0]
        reference = make_gemma3_text().to(dtype)
        ids = torch.tensor([3, 300, 7])
        expected = reference.model.embed_tokens(ids)
        assert torch.equal(model._parts.embedding(ids), expected)


def test_the_kernels_do_not_compute_it_and_the_log_says_so(tmp_path):
    path = tmp_path / "gemma.gguf"
    write_gemma_gguf(path, GGMLQuantizationType.Q8_0)
    checkpoint = open_checkpoint(path)
    assert choose_products("auto", CPU, checkpoint) == torch.float32
    with pytest.raises(BadCheckpoint, match="int8 cannot be had: the kernels do not compute"):
        choose_products("int8", CPU, checkpoint)


def test_norms_of_a_gguf_hold_the_one_that_a_folder_adds(tmp_path):
    reference = write_gemma_gguf(tmp_path / "gemma.gguf", GGMLQuantizationType.F32)
    reference.save_pretrained(tmp_path / "folder")
    one, other = (load_models(tmp_path / name, 1)[0] for name in ("gemma.gguf", "folder"))
    found, expected = (model._parts.layers[3].mlp_norm._weight for model in (one, other))
    assert torch.equal(found, expected)
