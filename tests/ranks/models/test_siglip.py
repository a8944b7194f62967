"""Gemma 3 with images against `transformers`: features, logits, tokens; on one rank and two."""

import random
import threading
from itertools import pairwise

import pytest
import torch

from ranks.errors import BadCheckpoint
from ranks.models.registry import move_encoder, open_checkpoint
from ranks.models.step_memory import StepLimits
from ranks.step_inputs import LaneImage
from tests.support.allocations import peak_of_allocations
from tests.support.tiny_gemma3 import (
    IMAGE_SIZE,
    IMAGE_TOKENS,
    TOKEN_ID,
    make_gemma3,
    write_tiny_gemma3,
)
from tests.support.tiny_worlds import Lane, World, load_models, scattered_table

NUM_BLOCKS = 64
SOFT, START, END = (
    TOKEN_ID[f"<{name}>"] for name in ("image_soft_token", "start_of_image", "end_of_image")
)
BLOCK = [START, *[SOFT] * IMAGE_TOKENS, END]
TEXT = [40, 300, 77, 51, 19, 222, 101, 90]
PROMPTS = {
    "one": [2, *TEXT, *BLOCK, *TEXT],
    "first": [2, *BLOCK, 9],
    "two": [2, *TEXT[:2], *BLOCK, 50, *BLOCK, *TEXT],
    "far": [2, *BLOCK, *TEXT * 4, *BLOCK, *TEXT * 4],
}
# Of the text: windows beyond, about and below an image's 4 rows.
CHANGES = {"window": {}, "short": {"sliding_window": 3}, "shorter": {"sliding_window": 2}}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    for name, changes in CHANGES.items():
        write_tiny_gemma3(root / name, **changes)
    return root


@pytest.fixture(scope="module")
def models(folders):
    return {size: load_models(folders / "window", size) for size in (1, 2)}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_pixels(seed):
    generator = torch.Generator().manual_seed(seed)
    shape = (IMAGE_SIZE, IMAGE_SIZE, 3)
    return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)


def values_of(pixels):
    """What the reference's processor makes of images of the right size."""
    images = torch.stack(pixels).permute(0, 3, 1, 2).float()
    return (images / 255 - 0.5) / 0.5


def image_starts(prompt):
    """Where the soft tokens of each image begin."""
    return [at + 1 for at, token_id in enumerate(prompt) if token_id == START]


def lane_of(prompt, rows, lane_id=0, num_lanes=1):
    images = tuple(
        LaneImage(start=start, rows=one)
        for start, one in zip(image_starts(prompt), rows, strict=True)
    )
    return Lane(lane_id, prompt, scattered_table(lane_id, num_lanes, NUM_BLOCKS), images)


def reference_logits(reference, ids, pixels):
    tokens = torch.tensor([ids])
    with torch.inference_mode():
        return reference(
            input_ids=tokens,
            pixel_values=values_of(pixels),
            token_type_ids=(tokens == SOFT).int(),
            attention_mask=torch.ones_like(tokens),
        ).logits[0, -1]


def test_image_rows_are_the_features_of_transformers(models):
    reference, pixels = make_gemma3(), [make_pixels(seed) for seed in range(3)]
    with torch.inference_mode():
        expected = reference.get_image_features(values_of(pixels)).pooler_output
    for one, features in zip(pixels, expected, strict=True):
        found = models[1][0].encode_image(one)
        assert found.shape == (IMAGE_TOKENS, reference.config.text_config.hidden_size)
        biggest = features.abs().max().item()
        torch.testing.assert_close(found, features, rtol=2e-5, atol=2e-5 * biggest)


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("name", PROMPTS)
@pytest.mark.parametrize("window", CHANGES)
def test_logits_and_greedy_tokens_equal_transformers(folders, window, name, world_size):
    reference, prompt = make_gemma3(**CHANGES[window]), PROMPTS[name]
    world = World(load_models(folders / window, world_size), NUM_BLOCKS, 16)
    pixels = [make_pixels(seed) for seed in range(len(image_starts(prompt)))]
    lane = lane_of(prompt, [world.models[0].encode_image(one) for one in pixels])

    logits, ids = world.step([lane.rows()])[0], list(prompt)

    expected = reference_logits(reference, prompt, pixels)
    biggest = expected.abs().max().item()
    torch.testing.assert_close(logits, expected, rtol=5e-5, atol=5e-5 * biggest)
    for _ in range(6):
        lane.token_ids.append(int(logits.argmax()))
        ids.append(int(reference_logits(reference, ids, pixels).argmax()))
        assert lane.token_ids == ids
        logits = world.step([lane.rows()])[0]


def test_another_image_gives_another_reply(models):
    prompt = PROMPTS["one"]
    found = []
    for seed in range(2):
        rows = [models[1][0].encode_image(make_pixels(seed))]
        found.append(World(models[1], NUM_BLOCKS, 16).step([lane_of(prompt, rows).rows()]))
    assert not torch.equal(*found)


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("world_size", [1, 2])
def test_passes_in_any_slices_and_company_give_the_bits_of_each_alone(
    models, world_size, num_threads
):
    prompts = list(PROMPTS.values())
    rows = [
        [models[1][0].encode_image(make_pixels(seed)) for seed, _ in enumerate(image_starts(one))]
        for one in prompts
    ]
    alone = [
        World(models[1], NUM_BLOCKS, 16).step([lane_of(*one).rows()])[0]
        for one in zip(prompts, rows, strict=True)
    ]
    torch.set_num_threads(num_threads)
    chooser = random.Random(world_size)
    for _ in range(3):
        world = World(models[world_size], NUM_BLOCKS, 16)
        lanes = [
            lane_of(prompt, images, number, len(prompts))
            for number, (prompt, images) in enumerate(zip(prompts, rows, strict=True))
        ]
        chooser.shuffle(lanes)
        cuts = sorted(chooser.sample(range(1, 6), chooser.randint(0, 5)))
        slices = [stop - first for first, stop in pairwise([0, *cuts, 6])]
        found = world.step([lane.rows() for lane in lanes], slices)
        assert all(
            torch.equal(one, alone[lane.lane_id]) for lane, one in zip(lanes, found, strict=True)
        )


def test_an_image_has_the_same_rows_on_every_rank_and_for_any_number_of_threads(models):
    pixels = make_pixels(5)
    expected = models[1][0].encode_image(pixels)
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        for model in (*models[1], *models[2]):
            assert torch.equal(model.encode_image(pixels), expected)


def test_an_image_may_be_encoded_beside_a_step(models):
    model, pixels = models[1][0], make_pixels(6)
    expected, prompt = model.encode_image(pixels), PROMPTS["far"]
    rows = [expected, expected]
    logits = World(models[1], NUM_BLOCKS, 16).step([lane_of(prompt, rows).rows()])
    found = []
    thread = threading.Thread(
        target=lambda: found.extend(model.encode_image(pixels) for _ in [0] * 20)
    )
    thread.start()
    for _ in range(10):
        again = World(models[1], NUM_BLOCKS, 16).step([lane_of(prompt, rows).rows()])
        assert torch.equal(again, logits)
    thread.join()
    assert len(found) == 20
    assert all(torch.equal(one, expected) for one in found)


def test_what_a_family_takes_as_an_image_is_told(models):
    facts = models[1][0].images
    assert (facts.num_tokens, facts.token_id) == (IMAGE_TOKENS, SOFT)
    assert (facts.width, facts.height) == (IMAGE_SIZE, IMAGE_SIZE)


@pytest.mark.parametrize(
    "pixels",
    [torch.zeros(28, 27, 3, dtype=torch.uint8), torch.zeros(28, 28, 3), torch.zeros(28, 28)],
)
def test_an_image_of_another_size_or_type_is_refused(models, pixels):
    with pytest.raises(ValueError, match=r"needed is uint8 \(28, 28, 3\)"):
        models[1][0].encode_image(pixels)


def test_what_encoding_takes_is_counted_beside_a_step(models):
    model = models[1][0]
    limits = StepLimits(max_step_tokens=64, num_lanes=2)
    counted = model._parts.image_encoder.num_step_bytes(4)
    model.encode_image(make_pixels(1))
    with peak_of_allocations() as peak:
        model.encode_image(make_pixels(1))
    assert peak.num_bytes <= counted <= model.step_bytes(limits)


def test_eyes_on_another_device_give_their_rows_in_the_models_type(folders):
    pixels = make_pixels(3)
    checkpoint = open_checkpoint(folders / "window")
    model = load_models(folders / "window", 1, torch.bfloat16)[0]
    own = model.encode_image(pixels)
    move_encoder(model, checkpoint, torch.device("cpu"))
    moved = model.encode_image(pixels)
    exact = load_models(folders / "window", 1)[0].encode_image(pixels)
    assert torch.equal(moved, exact.to(torch.bfloat16))
    assert not torch.equal(moved, own)
    assert model.images == load_models(folders / "window", 1)[0].images


def test_eyes_that_lack_a_tensor_are_refused_by_name(tmp_path):
    model = make_gemma3()
    state = model.state_dict()
    del state["model.vision_tower.encoder.layers.1.mlp.fc2.bias"]
    model.save_pretrained(tmp_path, state_dict=state)
    with pytest.raises(BadCheckpoint, match=r"encoder.layers.1.mlp.fc2.bias' is missing"):
        load_models(tmp_path, 1)
