"""A step in one call: the bits of its parts, and nothing is run that names what is not there."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st

from ranks.native.library import NativeEngine, open_library
from ranks.native.parts import StepWords
from ranks.native.structs import address
from ranks.weights.gguf_file import _to_float32
from tests.support.native_kernels import usable_sets
from tests.support.native_models import in_library
from tests.support.tiny_checkpoints import VOCAB_SIZE, write_gguf
from tests.support.tiny_worlds import Lane, World, load_world, scattered_table

pytestmark = pytest.mark.skipif(not usable_sets(), reason="there is no library")
NUM_BLOCKS = 64


class InParts(NativeEngine):
    """The library as it is without that call."""

    forward = None


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("q8_0") / "model.gguf"
    write_gguf(path, GGMLQuantizationType.Q8_0, architecture="qwen2", family="qwen2_grouped")
    return load_world(path, 1, dtype=torch.int8).models[0]


def worlds_of(model, instruction_set, num_threads=1):
    """Two worlds of one model: steps whole, and in parts."""
    whole = in_library(model, instruction_set, num_threads)
    parts = in_library(model, instruction_set, num_threads)
    library, made_of = open_library(instruction_set), model.parts
    parts._engine = InParts(library, made_of.shape, made_of.layers, num_threads=num_threads)
    return [World([one], num_blocks=NUM_BLOCKS, block_size=16) for one in (whole, parts)]


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("instruction_set", usable_sets())
@settings(max_examples=12, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    chunk=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_a_step_run_whole_has_the_bits_of_its_parts(
    model, instruction_set, num_threads, lengths, chunk, seed
):
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(0, VOCAB_SIZE, length).tolist() for length in lengths]
    logits = []
    for world in worlds_of(model, instruction_set, num_threads):
        lanes = [
            Lane(lane_id, list(prompt), scattered_table(lane_id, 6, NUM_BLOCKS))
            for lane_id, prompt in enumerate(prompts)
        ]
        found = []
        for _ in range(4):
            found.append(world.step([lane.rows(chunk) for lane in lanes]))
            for lane in lanes:
                if lane.num_computed == len(lane.token_ids):
                    lane.token_ids.append(7)
        logits.append([one.numpy().tobytes() for one in found if one is not None])
    assert logits[0] == logits[1] != []


def words_of(**changes):
    """A step of a lane with three rows and one with one, in blocks that are there."""
    words = StepWords(
        positions=[14, 15, 16, 0],
        token_ids=[1, 2, 3, 4],
        lane_rows=[0, 3, 4],
        table_at=[0, 2],
        draw_rows=[2, 3],
        tables=[5, 6, 9],
    )
    return replace(words, **changes)


@pytest.fixture
def frame(model):
    """The frame of a model that has run a step."""
    world = World([model], num_blocks=NUM_BLOCKS, block_size=16)
    world.step([Lane(0, [1, 2], scattered_table(0, 2, NUM_BLOCKS)).rows()])
    return model._frame


def test_what_fits_is_run(model, frame):
    logits = model._engine.forward(frame, words_of())
    assert logits.shape == (2, model.parts.head.outputs)
    assert np.isfinite(logits).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"tables": [5, 6, NUM_BLOCKS + 1]},
        {"tables": [5, -1, 9]},
        {"tables": [5, 6]},  # the second lane has none
        {"tables": [5, 9], "table_at": [0, 1]},  # the first lane's last position has none
        {"table_at": [2, 0]},
        {"table_at": [-1, 2]},
        {"token_ids": [1, 2, 3, VOCAB_SIZE]},
        {"token_ids": [1, 2, -3, 4]},
        {"positions": [14, 15, 16, 1 << 40]},
        {"positions": [14, 15, -16, 0]},
        {"positions": [14, 15, 16]},
        {"lane_rows": [0, 4, 4]},
        {"lane_rows": [0, 5, 4]},
        {"lane_rows": [1, 3, 4]},
        {"lane_rows": [0, 3, 3]},
        {"draw_rows": [2, 4]},
        {"draw_rows": [-1, 3]},
        {"positions": [], "token_ids": [], "lane_rows": [0], "table_at": [], "draw_rows": []},
    ],
)
def test_what_names_what_is_not_there_is_not_run(model, frame, changes):
    before = frame.pool.copy()
    with pytest.raises(ValueError, match="names what is not there"):
        model._engine.forward(frame, words_of(**changes))
    assert np.array_equal(before, frame.pool)


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 9])
def test_words_that_are_cut_off_are_not_run(model, frame, cut):
    class Cut:
        positions = ()
        draw_rows = (0,)

        @staticmethod
        def flat():
            return words_of().flat()[:cut]

    with pytest.raises(ValueError, match="names what is not there"):
        model._engine.forward(frame, Cut())


def test_every_scale_and_weight_is_looked_up_as_numpy_does():
    """All numbers that a half can be, and all weights."""
    halves = np.arange(1 << 16, dtype=np.uint16)
    raw = np.zeros((len(halves), 34), dtype=np.uint8)
    raw[:, :2] = halves[:, None].view(np.uint8)
    raw[:, 2:] = np.arange(raw.size - 2 * len(raw), dtype=np.uint8).reshape(len(raw), 32)
    wanted = _to_float32(raw, GGMLQuantizationType.Q8_0)
    found = np.empty_like(wanted)
    open_library().functions.lanehost_look_up(address(raw), len(raw), address(found))
    numbers = np.isfinite(halves.view(np.float16))
    assert np.array_equal(found[numbers].view(np.uint32), wanted[numbers].view(np.uint32))
    assert not np.isfinite(found[~numbers]).any()
