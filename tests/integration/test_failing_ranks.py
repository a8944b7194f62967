"""Steps that fail on real ranks with the real model: refused whole, and then run in parts.

In the products that are served; steps that fail in float32: `test_passes.py`.
"""

import asyncio

import pytest
import structlog

from lanehost.embedded import embedded_model_path
from lanehost.errors import RankGroupLost
from lanehost.rank_group.supervisor import RANK_COMMAND, running_rank_group
from ranks.plan import Draw, RefusalKind, StepResult
from tests.support.failing_rank import failing_rank_command
from tests.support.plan_writer import PlanWriter
from tests.support.processes import is_alive
from tests.support.rank_facts import group_settings
from tests.support.tiny_checkpoints import write_hf_checkpoint

pytestmark = [pytest.mark.model, pytest.mark.ranks, pytest.mark.timeout(300)]
PROMPTS = {
    0: list(range(40, 75)),
    2: [504, 3575, 282, 4649, 314],
    5: [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1100, 1200, 1300],
}
POISON = 1300
NUM_TOKENS = 5
NOISY = Draw(temperature=0.8, seed=3)


def group_of(command, tp=1, model_path=None):
    settings = group_settings(
        model_path=model_path or embedded_model_path(),
        tp=tp,
        device="cpu",
        num_threads=1,
        kv_tokens=2048,
    )
    return running_rank_group(settings, on_progress=lambda _: None, rank_command=command)


async def run(group, *plans):
    """All of them in flight at once; their outcomes."""
    for plan in plans:
        group.submit(plan)
    return [await group.next_outcome() for _ in plans]


async def generate(group, writer, lane, **joined):
    """One lane by itself: its prompt, then token after token."""
    (first,) = await run(group, writer.plan(prompts={lane: PROMPTS[lane]}, **joined))
    tokens = [first.drawn[lane]]
    while len(tokens) < NUM_TOKENS:
        (outcome,) = await run(group, writer.plan(decodes=(lane,)))
        tokens.append(outcome.drawn[lane])
    return tokens


@pytest.fixture(scope="module")
def cold():
    """What each prompt gives by itself, on ranks that fail never."""

    async def run_all():
        async with group_of(RANK_COMMAND) as group:
            writer = PlanWriter(block_size=16)
            return {lane: await generate(group, writer, lane, draw=NOISY) for lane in PROMPTS}

    return asyncio.run(run_all())


@pytest.mark.parametrize("tp", [1, 2])
async def test_a_pass_that_fails_is_refused_whole_and_each_prompt_alone_is_its_cold_run(cold, tp):
    async with group_of(failing_rank_command("fail-prompts-above=1"), tp) as group:
        writer = PlanWriter(block_size=16)
        plans = [writer.plan(prompts=PROMPTS, draw=NOISY), writer.plan(decodes=tuple(PROMPTS))]
        failed, skipped = await run(group, *plans)
        assert (failed.kind, skipped.kind) == (RefusalKind.FAILED, RefusalKind.SKIPPED)
        assert failed.reason == "RuntimeError while it was computed"
        for plan in reversed(plans):
            writer.take_back(plan)
        for lane in PROMPTS:
            assert await generate(group, writer, lane, draw=NOISY) == cold[lane]


async def test_a_poisoned_prompt_fails_alone_and_harms_no_neighbour_in_its_steps(cold):
    async with group_of(failing_rank_command(f"fail-token={POISON}"), 2) as group:
        writer = PlanWriter(block_size=16)
        (first,) = await run(group, writer.plan(prompts={0: PROMPTS[0]}, draw=NOISY))
        poisoned = writer.plan(prompts={5: PROMPTS[5]}, decodes=(0,), draw=NOISY)
        (failed,) = await run(group, poisoned)
        assert failed.kind is RefusalKind.FAILED
        writer.take_back(poisoned)
        tokens = [first.drawn[0]]
        while len(tokens) < NUM_TOKENS:
            (outcome,) = await run(group, writer.plan(decodes=(0,)))
            assert isinstance(outcome, StepResult)
            tokens.append(outcome.drawn[0])
        assert tokens == cold[0]


SMALL_PROMPTS = {0: [1, 2, 3], 3: [7, 300, 8]}
LOSSES = {
    "late-token=300": r"rank [01] says that the group is broken: RuntimeError while it was",
    "fail-token=300@1": "rank 1 could not run step 1, and rank 0 has said nothing of it",
}


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    write_hf_checkpoint(folder, "llama")
    return folder


async def test_one_rank_survives_what_fails_behind_its_forward_pass(small_model):
    async with group_of(failing_rank_command("late-token=300"), 1, small_model) as group:
        writer = PlanWriter(block_size=16)
        plan = writer.plan(prompts=SMALL_PROMPTS)
        (failed,) = await run(group, plan)
        assert failed.kind is RefusalKind.FAILED
        writer.take_back(plan)
        (alone,) = await run(group, writer.plan(prompts={0: SMALL_PROMPTS[0]}))
        assert list(alone.drawn) == [0]


@pytest.mark.parametrize("rule", LOSSES)
async def test_a_step_that_fails_within_its_collectives_loses_two_ranks_by_name(small_model, rule):
    with structlog.testing.capture_logs() as logs:
        async with group_of(failing_rank_command(rule), 2, small_model) as group:
            group.submit(PlanWriter(block_size=16).plan(prompts=SMALL_PROMPTS))
            with pytest.raises(RankGroupLost, match=LOSSES[rule]):
                await asyncio.wait_for(group.next_outcome(), 25)
    pids = [e["pid"] for e in logs if e["event"] == "rank_spawned"]
    assert len(pids) == 2
    assert not any(map(is_alive, pids))
