"""One plan on one rank: checked before it runs, drawn, and told by digest."""

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ranks.errors import FellowLost, GivenUp, StepBroken
from ranks.executor import CountedCollective, Executor, Held, survivable_errors
from ranks.lane_table import Limits
from ranks.plan import Draw, LaneFault, RefusalKind, StepRefused, StepResult, result_digest
from ranks.shards import NoCollective
from ranks.step_clock import StepClock
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
    def make_executor(collective=None, *, world_size=1):
        watched = WatchedModel(model)
        executor = Executor(
            model=watched,
            held=Held(kv=watched.new_kv_store(NUM_BLOCKS, BLOCK_SIZE)),
            collective=collective or NoCollective(),
            world_size=world_size,
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


def test_a_step_tells_its_parts_when_the_plan_asks_and_they_add_up(make):
    executor, _, writer = make()
    silent = executor.run(writer.plan(prompts=PROMPTS))
    asked = executor.run(replace(writer.plan(decodes=(0, 3)), tells_parts=True))
    assert silent.parts == {}
    assert set(asked.parts) == {"forward", "exchange", "sampling", "other"}
    assert sum(asked.parts.values()) == asked.compute_ns
    assert all(ns > 0 for ns in asked.parts.values())


class Lender(NoCollective):
    """The collective of ranks whose native code adds by itself."""

    def lend_exchange(self):
        return self


def test_an_exchange_that_was_lent_counts_as_begun():
    lent = CountedCollective(Lender(), StepClock(lambda: 0))
    alone = CountedCollective(NoCollective(), StepClock(lambda: 0))
    assert lent.lend_exchange() is not None
    assert alone.lend_exchange() is None
    assert (lent.num_begun, alone.num_begun) == (1, 0)


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
    assert refused.kind is RefusalKind.MISMATCH
    assert "digest" in refused.reason
    assert watched.num_forwards == forwards
    # The master takes the refused step back and writes it again under the next id.
    writer.take_back(plan)
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
    executor, _, writer = make(Follower([17, -1]), world_size=2)
    result = executor.run(writer.plan(prompts=PROMPTS))
    assert (result.drawn, result.failures) == ({0: 17}, {3: LaneFault.NAN})


def test_leader_and_follower_say_the_same_digest(make):
    leader, _, writer = make()
    plan = writer.plan(prompts=PROMPTS)
    said = leader.run(plan)
    follower, _, _ = make(Follower(list(said.drawn.values())), world_size=2)
    assert follower.run(plan).digest == said.digest


def test_a_step_that_raises_is_refused_whole_and_logged_without_its_words(make):
    executor, watched, writer = make()
    watched.raise_before = RuntimeError("token 1234 in a shape of [1234]")
    plan = writer.plan(prompts=PROMPTS)
    with capture_logs() as logs:
        refused = executor.run(plan)
    assert refused == StepRefused(
        step_id=1, epoch=1, kind=RefusalKind.FAILED, reason="RuntimeError while it was computed"
    )
    (event,) = logs
    assert (event["event"], event["step_id"], event["num_tokens"]) == ("step_failed", 1, 25)
    assert "model_wrappers.py" in event["trace"]
    assert "1234" not in str(event)


@pytest.mark.parametrize("error", [RuntimeError("x"), MemoryError(), torch.OutOfMemoryError("x")])
def test_want_of_memory_and_what_rows_may_cause_are_survived_on_a_cpu(make, error):
    executor, watched, writer = make()
    watched.raise_behind = error
    assert executor.run(writer.plan(prompts=PROMPTS)).kind is RefusalKind.FAILED


def test_on_cuda_want_of_memory_alone_is_survived():
    assert survivable_errors(torch.device("cuda", 0)) == (torch.OutOfMemoryError,)
    assert survivable_errors(torch.device("meta")) == ()


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), AssertionError(), SystemExit()])
def test_any_other_fault_ends_the_rank(make, error):
    executor, watched, writer = make()
    watched.raise_before = error
    with pytest.raises(type(error)):
        executor.run(writer.plan(prompts=PROMPTS))


def test_among_several_ranks_a_step_is_refused_until_its_first_collective_has_begun(make):
    executor, watched, writer = make(Follower([17, 18]), world_size=2)
    watched.raise_before = MemoryError()
    failed = writer.plan(prompts=PROMPTS)
    assert executor.run(failed).kind is RefusalKind.FAILED
    writer.take_back(failed)
    assert isinstance(executor.run(again := writer.plan(prompts=PROMPTS)), StepResult)
    assert again.follows == 0
    watched.raise_before = MemoryError()
    failed = writer.plan(decodes=(0, 3))
    assert executor.run(failed).kind is RefusalKind.FAILED
    writer.take_back(failed)
    watched.raise_behind = MemoryError()
    with pytest.raises(StepBroken, match="MemoryError while it was computed"):
        executor.run(writer.plan(prompts={5: [1, 2]}))


@pytest.mark.parametrize("error", [FellowLost("rank 0 has ended", suspect=0), GivenUp("leave")])
def test_what_ends_an_epoch_passes_through(make, error):
    executor, watched, writer = make()
    watched.raise_behind = error
    with pytest.raises(type(error)):
        executor.run(writer.plan(prompts=PROMPTS))


def test_a_step_behind_one_that_failed_is_skipped_and_runs_nothing(make):
    executor, watched, writer = make()
    executor.run(writer.plan(prompts=PROMPTS))
    watched.raise_behind = RuntimeError("on purpose")
    failed, behind = writer.plan(decodes=(0, 3)), writer.plan(decodes=(3,))
    answers = [executor.run(failed), executor.run(behind)]
    assert [one.kind for one in answers] == [RefusalKind.FAILED, RefusalKind.SKIPPED]
    assert answers[1].reason == "it follows step 2, which has not run; the last that has is 1"
    assert watched.num_forwards == 2


class Attempts:
    """Runs plans of which some fail, and takes those back; keeps what was drawn."""

    def __init__(self, made, fails, *, has_another):
        self.executor, self.watched, self.writer = made
        self.fails = iter(fails)
        self.has_another = has_another
        self.drawn = {lane: [] for lane in PROMPTS}

    def attempt(self, **asked):
        """Say whether it ran."""
        where = next(self.fails, None)
        if where is None:
            for lane, token_id in self.executor.run(self.writer.plan(**asked)).drawn.items():
                self.drawn[lane].append(token_id)
            return True
        setattr(self.watched, where, RuntimeError("on purpose"))
        plans = [self.writer.plan(**asked)]
        if self.has_another:
            plans.append(self.writer.plan(prompts={7: [9, 9]}))
        assert all(isinstance(self.executor.run(plan), StepRefused) for plan in plans)
        for plan in reversed(plans):
            self.writer.take_back(plan)
        return False

    def insist(self, **asked):
        while not self.attempt(**asked):
            pass

    def generate(self, num_tokens, draw):
        """A pass that fails is run prompt by prompt, in parts; decodes that fail, one by one."""
        if not self.attempt(prompts=PROMPTS, draw=draw):
            for lane, ids in PROMPTS.items():
                self.insist(prompts={lane: ids[:3]}, draws=False, draw=draw)
                self.insist(more={lane: ids[3:]})
        while lanes := tuple(lane for lane in PROMPTS if len(self.drawn[lane]) < num_tokens):
            if not self.attempt(decodes=lanes):
                self.attempt(decodes=lanes[-1:])
        return self.drawn


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    fails=st.lists(st.sampled_from([None, "raise_before", "raise_behind"]), max_size=8),
    has_another=st.booleans(),
    draw=st.sampled_from([Draw(), NOISY]),
)
def test_what_failed_and_runs_again_in_other_steps_gives_the_same_bits(
    make, fails, has_another, draw
):
    expected = generate(*without_model(make()), PROMPTS, 6, draw=draw)
    attempts = Attempts(make(), fails, has_another=has_another)
    assert attempts.generate(6, draw) == expected
