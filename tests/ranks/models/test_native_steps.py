"""Whatever steps a native model runs, each row has the bits that it has all by itself.

Lanes of any lengths; prompts in any chunks beside lanes that decode; biases, norms of q and k,
windows; 1 to 64 rows in a step; any set of instructions, one to three threads; one rank and two.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st

from ranks.native.library import NativeEngine, open_library
from ranks.step_inputs import LaneRows
from tests.support.native_kernels import usable_sets
from tests.support.tiny_checkpoints import VOCAB_SIZE, write_gguf
from tests.support.tiny_worlds import Lane, World, load_models, scattered_table

VARIANTS = {
    "plain": ("Q4_1", "llama", "llama_grouped", None),
    "biased": ("Q8_0", "llama", "llama_biased_grouped", None),
    "biased_qkv": ("Q4_0", "qwen2", "qwen2_grouped", None),
    "normed": ("Q4_0", "qwen3", "qwen3_grouped", None),
    "windowed": ("Q4_1", "qwen2", "qwen2_grouped", 9),
}
ENGINES = [(name, threads) for name in usable_sets() for threads in (1, 2, 3)]
pytestmark = pytest.mark.skipif(not ENGINES, reason="numpy takes minutes: test_native_llama.py")
NUM_BLOCKS, MAX_ROWS = 240, 64
# Of each lane: the tokens of its prompt, and those that it decodes afterwards.
LENGTHS = ((1, 4), (2, 3), (7, 5), (16, 2), (17, 3), (33, 2), (60, 1))
_random = np.random.default_rng(11)
SEQUENCES = [_random.integers(0, VOCAB_SIZE, sum(lengths)).tolist() for lengths in LENGTHS]


@pytest.fixture(scope="module")
def models_of(tmp_path_factory):
    """(variant, engine, threads, ranks) → the models of all ranks."""
    folder = tmp_path_factory.mktemp("variants")
    for name, (kind, architecture, family, _) in VARIANTS.items():
        stored = GGMLQuantizationType[kind]
        write_gguf(folder / f"{name}.gguf", stored, architecture=architecture, family=family)

    @cache
    def models(variant, engine, threads, ranks):
        loaded = load_models(folder / f"{variant}.gguf", ranks, torch.int8)
        for model in loaded:
            parts, window = model._parts, VARIANTS[variant][3]
            # The first layer sees a window, the others all, as in some families.
            layers = (replace(parts.layers[0], window=window), *parts.layers[1:])
            library = open_library(engine)
            model._engine = NativeEngine(library, parts.shape, layers, num_threads=threads)
        return loaded

    return models


@pytest.fixture(scope="module")
def alone(models_of):
    """Variant → for each sequence the logits of each of its rows, in a step of its own."""

    @cache
    def run(variant):
        return [
            _one_by_one(World(models_of(variant, *ENGINES[-1], 1), NUM_BLOCKS, 16), tokens)
            for tokens in SEQUENCES
        ]

    return run


def _one_by_one(world, tokens):
    table = scattered_table(0, 1, NUM_BLOCKS)
    rows = [
        LaneRows(lane_id=0, start=at, token_ids=[token], block_table=table, num_draws=1)
        for at, token in enumerate(tokens)
    ]
    return [world.step([row])[0] for row in rows]


@pytest.mark.timeout(240)
@settings(max_examples=12)
@given(data=st.data())
def test_in_any_steps_each_row_has_the_bits_that_it_has_alone(models_of, alone, data):
    variant = data.draw(st.sampled_from(sorted(VARIANTS)), "variant")
    engine, ranks = data.draw(st.sampled_from(ENGINES)), data.draw(st.sampled_from((1, 2)))
    block_size = data.draw(st.sampled_from((1, 8, 16)))
    world = World(models_of(variant, *engine, ranks), NUM_BLOCKS * 16 // block_size, block_size)
    for store in world.stores:
        store.pool.fill_(float("nan"))  # what other lanes may have left
    lanes = _random_lanes(data, NUM_BLOCKS * 16 // block_size)
    drawn = 0
    while any(lane.num_computed < len(SEQUENCES[lane.lane_id]) for lane in lanes):
        rows = _random_step(data, lanes)
        logits = iter(world.step(rows))
        for row in rows:
            if row.num_draws:
                at = row.start + len(row.token_ids) - 1
                assert torch.equal(next(logits), alone(variant)[row.lane_id][at])
                drawn += 1
    assert drawn == sum(1 + LENGTHS[lane.lane_id][1] for lane in lanes)


def _random_lanes(data, num_blocks):
    chosen = data.draw(st.permutations(range(len(SEQUENCES))))
    chosen = chosen[: data.draw(st.integers(1, len(SEQUENCES)))]
    return [
        Lane(n, SEQUENCES[n][: LENGTHS[n][0]], scattered_table(n, len(SEQUENCES), num_blocks))
        for n in chosen
    ]


def _random_step(data, lanes):
    """Some lanes that have something left, in any order; one that has drawn goes on."""
    left = [lane for lane in lanes if lane.num_computed < len(SEQUENCES[lane.lane_id])]
    rows, room = [], MAX_ROWS
    for lane in data.draw(st.permutations(left))[: data.draw(st.integers(1, len(left)))]:
        if lane.num_computed == len(lane.token_ids):
            lane.token_ids.append(SEQUENCES[lane.lane_id][lane.num_computed])
        rows.append(lane.rows(data.draw(st.integers(1, min(room, 40)))))
        room -= len(rows[-1].token_ids)
        if not room:
            break
    return rows
