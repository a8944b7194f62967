"""One plan on one rank: checked before it runs, drawn, and told by digest."""

from dataclasses import replace

import pytest
import torch

from ranks.executor import Executor
from ranks.lane_table import Limits
from ranks.plan import Draw, LaneFault, StepRefused, result_digest
from ranks.shards import NoCollective
from tests.support.model_wrappers import WatchedModel
from tests.support.plan_writer import PlanWriter
from tests.support.tiny_checkpoints import VOCAB_SIZE, write_hf_checkpoint
from tests.support.tiny_worlds import load_models

NUM_BLOCKS, BLOCK_SIZE = 32, 16
PROMPTS = {0: [1, 2, 3, 4, 5], 3: list(range(40, 60))}
NOISY = Draw(temperature=1.5, seed=9)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    write_hf_checkpoint(folder, "llama")
    return load_models(folder, 1)[0]


class Follower(NoCollective):
    """The collective of a rank that hears what the leader drew."""

    def __init__(self, heard):
        self.heard = heard

    def gather_columns(self, tensor):
        return None

    def broadcast_ids(self, ids):
        assert ids.shape == (len(self.heard),)
        return torch.tensor(self.heard)


@pytest.fixture
def make(model):
    def make_executor(collective=None):
        watched = WatchedModel(model)
        executor = Executor(
            model=watched,
            kv=watched.new_kv_store(NUM_BLOCKS, BLOCK_SIZE),
            collective=collective or NoCollective(),
            limits=Limits(
                epoch=1,
                num_lanes=8,
                num_blocks=NUM_BLOCKS,
                block_size=BLOCK_SIZE,
                max_step_tokens=64,
                vocab_size=VOCAB_SIZE,
                context_length=1024,
            ),
            clock_ns=iter(range(0, 10**6, 7)).__next__,
        )
        return executor, watched, PlanWriter(block_size=BLOCK_SIZE)

    return make_executor


def generate(executor, writer, prompts, num_tokens, **joined):
    """Tokens of each lane, prefilled in one step and decoded together."""
    results = [executor.run(writer.plan(prompts=prompts, **joined))]
    lanes = tuple(prompts)
    results += [executor.run(writer.plan(decodes=lanes)) for _ in range(num_tokens - 1)]
    return {lane: [result.drawn[lane] for result in results] for lane in prompts}


@pytest.mark.parametrize("draw", [Draw(), NOISY])
def test_a_lane_draws_the_same_alone_and_beside_others(make, draw):
    together = generate(*without_model(make()), PROMPTS, 8, draw=draw)
    for lane, prompt in PROMPTS.items():
        alone = generate(*without_model(make()), {lane: prompt}, 8, draw=draw)
        assert together[lane] == alone[lane]


def without_model(made):
    executor, _, writer = made
    return executor, writer


def test_a_prompt_in_parts_draws_what_it_draws_whole(make):
    whole = generate(*without_model(make()), {1: PROMPTS[3]}, 4)[1]
    executor, _, writer = make()
    executor.run(writer.plan(prompts={1: PROMPTS[3][:7]}, draws=False))
    first = executor.run(writer.plan(more={1: PROMPTS[3][7:]}))
    rest = [executor.run(writer.plan(decodes=(1,))).drawn[1] for _ in range(3)]
    assert [first.drawn[1], *rest] == whole


def test_the_result_says_what_was_fed_and_drawn_by_digest(make):
    executor, _, writer = make()
    plan = writer.plan(prompts=PROMPTS)
    result = executor.run(plan)
    fed = [*PROMPTS[0], *PROMPTS[3]]
    assert result.digest == result_digest(plan.digest, fed, result.drawn)
    decode = writer.plan(decodes=(3,))
    after = executor.run(decode)
    assert after.digest == result_digest(decode.digest, [result.drawn[3]], after.drawn)
    assert after.compute_ns == 7


def test_a_part_that_does_not_end_a_prompt_draws_nothing(make):
    executor, watched, writer = make()
    result = executor.run(writer.plan(prompts=PROMPTS, draws=False))
    assert (result.drawn, result.failures, watched.num_forwards) == ({}, {}, 1)


def test_a_wrong_digest_is_refused_before_any_forward_and_changes_nothing(make):
    expected = generate(*without_model(make()), {0: PROMPTS[0]}, 3)[0]
    executor, watched, writer = make()
    first = executor.run(writer.plan(prompts={0: PROMPTS[0]}))
    forwards = watched.num_forwards
    plan = writer.plan(decodes=(0,))
    refused = executor.run(replace(plan, digest=bytes(16)))
    assert isinstance(refused, StepRefused)
    assert (refused.step_id, refused.epoch) == (plan.step_id, 1)
    assert "digest" in refused.reason
    assert watched.num_forwards == forwards
    # The master takes the refused step back and writes it again under the next id.
    writer.positions[0] -= 1
    rest = [executor.run(writer.plan(decodes=(0,))).drawn[0] for _ in range(2)]
    assert [first.drawn[0], *rest] == expected


def test_a_plan_without_rows_moves_lanes_and_runs_nothing(make):
    executor, watched, writer = make()
    executor.run(writer.plan(prompts=PROMPTS))
    result = executor.run(writer.plan(leaves=(0, 3)))
    assert (result.drawn, watched.num_forwards) == ({}, 1)
    assert executor.run(writer.plan(prompts={0: [1]})).drawn


def test_logits_that_are_no_numbers_fail_their_lane_alone(make):
    expected = generate(*without_model(make()), {3: PROMPTS[3]}, 3)[3]
    executor, watched, writer = make()
    watched.spoil_draws = [0]
    first = executor.run(writer.plan(prompts=PROMPTS))
    assert first.failures == {0: LaneFault.NAN}
    assert list(first.drawn) == [3]
    # The next plan was written before the fault was known, and still fits.
    second = executor.run(writer.plan(decodes=(0, 3)))
    third = executor.run(writer.plan(leaves=(0,), decodes=(3,)))
    assert [r.drawn[3] for r in (first, second, third)] == expected


def test_a_follower_takes_the_leaders_ids_and_faults(make):
    executor, _, writer = make(Follower([17, -1]))
    result = executor.run(writer.plan(prompts=PROMPTS))
    assert (result.drawn, result.failures) == ({0: 17}, {3: LaneFault.NAN})


def test_leader_and_follower_say_the_same_digest(make):
    leader, _, writer = make()
    plan = writer.plan(prompts=PROMPTS)
    said = leader.run(plan)
    follower, _, _ = make(Follower(list(said.drawn.values())))
    assert follower.run(plan).digest == said.digest
