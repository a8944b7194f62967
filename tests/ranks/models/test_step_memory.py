"""The estimate against what steps allocate."""

from dataclasses import replace

import pytest
import torch
from gguf.constants import GGMLQuantizationType

from ranks.models.step_memory import (
    StepLimits,
    native_step_bytes,
    native_step_bytes_per_position,
    row_bytes,
)
from ranks.noise import DrawnRow
from ranks.plan import Draw
from ranks.sampler import draw_rows
from ranks.tiles import pad_count
from tests.support.allocations import peak_of_allocations
from tests.support.tiny_checkpoints import write_gguf, write_hf_checkpoint
from tests.support.tiny_gemma3 import make_gemma3_text
from tests.support.tiny_worlds import Lane, World, load_models, scattered_table

NUM_BLOCKS = 128


@pytest.fixture(scope="module", params=["llama", "qwen2_window", "qwen3", "gemma3"])
def models(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    if request.param == "gemma3":
        make_gemma3_text().save_pretrained(folder)
    else:
        write_hf_checkpoint(folder, request.param)
    return load_models(folder, 1)


def peak_of_step(models, lanes):
    world = World(models, NUM_BLOCKS, 16)
    with peak_of_allocations() as peak:
        logits = world.step([lane.rows() for lane in lanes])
        draw = Draw(temperature=1.0, top_p=0.9)
        drawn = [DrawnRow(row=row, draw=draw, position=0) for row in range(logits.shape[0])]
        draw_rows(logits, drawn)
    return peak.num_bytes


def lanes_of(lengths):
    return [
        Lane(number, [7] * length, scattered_table(number, len(lengths), NUM_BLOCKS))
        for number, length in enumerate(lengths)
    ]


@pytest.mark.parametrize("lengths", [[1], [512], [900], [1] * 16, [100] * 5])
def test_no_step_allocates_more_than_the_estimate(models, lengths):
    limits = StepLimits(max_step_tokens=max(512, sum(lengths)), num_lanes=16)
    model = models[0]
    estimate = model.step_bytes(limits) + 64 * model.step_bytes_per_block(16, limits)
    assert peak_of_step(models, lanes_of(lengths)) <= estimate


def test_a_row_takes_at_most_its_estimate_and_at_least_a_third_of_it(models):
    model = models[0]
    width = pad_count(model.config.intermediate_size, 16)
    one = row_bytes(model.config, model._heads, mlp_width=width, itemsize=4)
    few, many = lanes_of([1] * 50), lanes_of([20] * 50)
    for_rows = peak_of_step(models, many) - peak_of_step(models, few)
    assert 950 * one / 3 <= for_rows <= 950 * one


def test_what_a_step_takes_grows_with_its_lanes_rows_and_positions(models):
    model = models[0]
    small = StepLimits(max_step_tokens=64, num_lanes=4)
    for larger in (replace(small, max_step_tokens=128), replace(small, num_lanes=8)):
        assert model.step_bytes(larger) > model.step_bytes(small)
    assert model.step_bytes_per_block(32, small) == 2 * model.step_bytes_per_block(16, small)


@pytest.mark.parametrize("num_threads", [1, 4])
def test_a_native_step_is_counted_by_its_rows_and_its_threads(tmp_path, num_threads):
    write_gguf(tmp_path / "m.gguf", GGMLQuantizationType.Q4_1)
    (model,) = load_models(tmp_path / "m.gguf", 1, torch.int8)
    shape = model._parts.shape
    small = StepLimits(max_step_tokens=64, num_lanes=2)
    large = StepLimits(max_step_tokens=128, num_lanes=2)
    row = (
        native_step_bytes(model.config, shape, large, num_threads=num_threads)
        - native_step_bytes(model.config, shape, small, num_threads=num_threads)
    ) // 64
    # The stream and the shards' sum, merged heads, attended heads, and gate and up for each thread.
    assert row > 4 * (2 * 96 + 192 + 96 + 64 * num_threads)
    scores = native_step_bytes_per_position(small, num_threads=num_threads)
    assert scores >= num_threads * 8 * 4
