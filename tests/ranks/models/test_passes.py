"""A pass in slices against the whole, with images that share it."""

import random
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ranks.models.passes import PassState
from ranks.shards import NoCollective
from ranks.step_inputs import LaneImage, LaneRows, build_inputs
from tests.support.tiny_checkpoints import HIDDEN_SIZE, VOCAB_SIZE, write_hf_checkpoint
from tests.support.tiny_worlds import CPU, Lane, World, load_models, scattered_table

NUM_BLOCKS, NUM_LAYERS = 160, 5
# lanes: length of the prompt, its images as (start, tokens)
LAYOUTS = ((21, ((3, 9),)), (150, ((0, 70), (71, 40))), (64, ()), (139, ((100, 37),)), (2, ()))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints") / "llama_deep"
    write_hf_checkpoint(folder, "llama_deep")
    return {size: load_models(folder, size) for size in (1, 2)}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_lanes():
    lanes = []
    for number, (length, images) in enumerate(LAYOUTS):
        chooser = random.Random(number)
        generator = torch.Generator().manual_seed(number)
        lanes.append(
            Lane(
                number,
                [chooser.randrange(VOCAB_SIZE) for _ in range(length)],
                scattered_table(number, len(LAYOUTS), NUM_BLOCKS),
                tuple(
                    LaneImage(start=at, rows=torch.randn(size, HIDDEN_SIZE, generator=generator))
                    for at, size in images
                ),
            )
        )
    return lanes


@pytest.fixture(scope="module")
def alone(models):
    """Each lane alone, its prompt in one step."""
    torch.set_num_threads(1)
    return [World(models[1], NUM_BLOCKS, 16).step([lane.rows()])[0] for lane in make_lanes()]


@st.composite
def slicings(draw):
    cuts = sorted(draw(st.sets(st.integers(1, NUM_LAYERS - 1))))
    ends = [0, *cuts, NUM_LAYERS]
    return [stop - first for first, stop in pairwise(ends)]


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_pass_in_any_slices_gives_the_bits_of_the_whole(models, alone, world_size):
    @settings(max_examples=8, deadline=None)
    @given(slicings(), st.sampled_from((1, 2, 3)))
    def check(slices, num_threads):
        torch.set_num_threads(num_threads)
        world = World(models[world_size], NUM_BLOCKS, 16)
        found = world.step([lane.rows() for lane in make_lanes()], slices)
        assert torch.equal(found, torch.stack(alone))

    check()


@pytest.mark.parametrize("world_size", [1, 2])
def test_rows_of_an_image_do_not_depend_on_what_shares_their_pass(models, alone, world_size):
    """Other lanes, and how far a chunk reaches beside the image, change nothing."""
    for seed in range(3):
        chooser = random.Random(seed)
        world = World(models[world_size], NUM_BLOCKS, 16)
        found = {}
        lanes = make_lanes()
        while len(found) < len(lanes):
            waiting = [lane for lane in lanes if lane.num_computed < len(lane.token_ids)]
            chosen = chooser.sample(waiting, chooser.randint(1, len(waiting)))
            rows = [lane.rows(chunk_of(lane, chooser)) for lane in chosen]
            logits = world.step(rows, [2, 3])
            found.update(zip([one.lane_id for one in rows if one.num_draws], logits, strict=True))
        assert all(torch.equal(found[number], one) for number, one in enumerate(alone))


def chunk_of(lane, chooser):
    """A number of rows that ends inside no image."""
    allowed = [
        stop
        for stop in range(lane.num_computed + 1, len(lane.token_ids) + 1)
        if not any(image.start < stop < image.stop for image in lane.images)
    ]
    return chooser.choice(allowed) - lane.num_computed


class FailingCollective(NoCollective):
    def __init__(self, num_good):
        self._num_good = num_good

    def all_reduce(self, tensor):
        self._num_good -= 1
        if self._num_good < 0:
            raise RuntimeError("told to")
        return tensor


def test_a_slice_that_fails_leaves_the_pass_where_it_was(models, alone):
    model = models[1][0]
    kv, lane = model.new_kv_store(NUM_BLOCKS, 16), make_lanes()[1]
    state = model.begin([lane.rows()], kv)
    model.run_layers(state, 0, 2, kv, NoCollective())
    before, kept = state.x, state.x.clone()

    with pytest.raises(RuntimeError, match="told to"):
        model.run_layers(state, 2, 5, kv, FailingCollective(3))

    assert state.x is before
    assert torch.equal(state.x, kept)
    assert state.num_layers_run == 2
    model.run_layers(state, 2, 5, kv, NoCollective())
    assert torch.equal(model.finish(state, NoCollective())[0], alone[1])


def new_state(num_layers_run=0):
    rows = LaneRows(lane_id=0, start=0, token_ids=[1], block_table=[0], num_draws=1)
    inputs = build_inputs([rows], device=CPU, block_size=16)
    return PassState(
        inputs=inputs, rotations=(), hidden={}, x=torch.zeros(4, 8), num_layers_run=num_layers_run
    )


@pytest.mark.parametrize(("first", "stop"), [(0, 3), (1, 3), (3, 4), (2, 2), (2, 6)])
def test_a_slice_that_does_not_go_on_where_the_pass_stopped_is_refused(first, stop):
    with pytest.raises(ValueError, match=f"layers {first} to {stop} of 5.* has run 2"):
        new_state(2).check_slice(first, stop, num_layers=5)


def test_a_pass_ends_when_all_layers_were_run(models):
    new_state(5).check_finished(5)
    with pytest.raises(ValueError, match="has run 4 of 5 layers"):
        new_state(4).check_finished(5)
    model = models[1][0]
    state = model.begin([], model.new_kv_store(NUM_BLOCKS, 16))
    with pytest.raises(ValueError, match="has run 0 of 5 layers"):
        model.finish(state, NoCollective())


def test_a_family_without_images_encodes_none(models):
    model = models[1][0]
    assert model.images is None
    assert model.num_layers == NUM_LAYERS
    with pytest.raises(ValueError, match="llama takes no images"):
        model.encode_image(torch.zeros(8, 8, 3, dtype=torch.uint8))
