"""Real rank processes with a tiny random model in shared memory: two ranks give what one gives."""

import asyncio
import os
import signal

import pytest
import structlog

from lanehost.errors import RankGroupLost, StartupFailed
from lanehost.rank_group.supervisor import running_rank_group
from ranks.plan import Draw, RefusalKind, StepRefused
from tests.support.plan_writer import PlanWriter
from tests.support.processes import is_alive, unhindered_s
from tests.support.rank_facts import group_settings
from tests.support.tiny_checkpoints import write_hf_checkpoint

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(120)]
PROMPTS = {0: [1, 2, 3, 4, 5], 3: list(range(40, 75)), 7: [9]}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    write_hf_checkpoint(folder, "llama")
    return folder


def group_of(checkpoint, tp, **settings):
    return running_rank_group(
        group_settings(
            model_path=checkpoint, tp=tp, dtype="float32", device="cpu", num_threads=1, **settings
        ),
        on_progress=lambda _: None,
    )


async def drive(group):
    """Chunks beside decodes, two plans in flight, a leave and a join: tokens of every step."""
    writer = PlanWriter(block_size=16)
    noisy = Draw(temperature=1.2, seed=5)
    plans = [
        writer.plan(prompts={0: PROMPTS[0]}),
        writer.plan(prompts={3: PROMPTS[3][:20]}, decodes=(0,), draws=False),
        writer.plan(more={3: PROMPTS[3][20:]}, decodes=(0,)),
        writer.plan(prompts={7: PROMPTS[7]}, decodes=(3, 0), draw=noisy),
        *[writer.plan(decodes=(0, 3, 7)) for _ in range(5)],
        writer.plan(leaves=(0,), prompts={0: PROMPTS[3]}, decodes=(7, 3)),
        *[writer.plan(decodes=(7, 0)) for _ in range(3)],
        writer.plan(leaves=(0, 3, 7)),
    ]
    tokens = []
    for plan in plans[:1]:
        group.submit(plan)
    for after in [*plans[1:], None]:
        if after is not None:
            group.submit(after)
        outcome = await group.next_outcome()
        assert not isinstance(outcome, StepRefused), outcome
        tokens.append(outcome.drawn)
    return tokens


async def test_two_ranks_give_the_tokens_of_one(checkpoint):
    async with group_of(checkpoint, 1) as group:
        assert (group.facts.collective, group.facts.world_size) == ("none", 1)
        one = await drive(group)
    async with group_of(checkpoint, 2) as group:
        assert (group.facts.collective, group.facts.world_size) == ("shm", 2)
        two = await drive(group)
    assert one == two
    assert sum(map(len, one)) == 31


async def test_a_killed_rank_ends_a_real_group_within_a_second_and_nothing_is_left(checkpoint):
    with structlog.testing.capture_logs() as logs:
        async with group_of(checkpoint, 2) as group:
            pids = [e["pid"] for e in logs if e["event"] == "rank_spawned"]
            writer = PlanWriter(block_size=16)
            group.submit(writer.plan(prompts={0: PROMPTS[3]}))
            await group.next_outcome()
            os.kill(pids[1], signal.SIGKILL)
            killed_at = unhindered_s()
            with pytest.raises(RankGroupLost) as lost:
                await asyncio.wait_for(group.next_outcome(), 5)
            assert unhindered_s() - killed_at < 1.0
            assert lost.value.rank == 1
    assert not any(map(is_alive, pids))


async def test_a_rank_killed_in_mid_step_ends_the_group_within_a_second(checkpoint):
    with structlog.testing.capture_logs() as logs:
        async with group_of(checkpoint, 2, collective_timeout_s=20) as group:
            pids = [e["pid"] for e in logs if e["event"] == "rank_spawned"]
            os.kill(pids[1], signal.SIGSTOP)
            group.submit(PlanWriter(block_size=16).plan(prompts={0: PROMPTS[3]}))
            # The other is in the step by then, and waits.
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(group.next_outcome(), 0.3)
            os.kill(pids[1], signal.SIGKILL)
            killed_at = unhindered_s()
            with pytest.raises(RankGroupLost, match="rank 1"):
                await asyncio.wait_for(group.next_outcome(), 5)
            assert unhindered_s() - killed_at < 1.0
    assert not any(map(is_alive, pids))


async def test_a_rank_stopped_in_mid_step_ends_the_group_by_name(checkpoint):
    with structlog.testing.capture_logs() as logs:
        async with group_of(checkpoint, 2, collective_timeout_s=5, stop_timeout_s=1) as group:
            pids = [e["pid"] for e in logs if e["event"] == "rank_spawned"]
            os.kill(pids[1], signal.SIGSTOP)
            group.submit(PlanWriter(block_size=16).plan(prompts={0: PROMPTS[3]}))
            with pytest.raises(RankGroupLost, match="rank 1 was stopped by a signal"):
                await asyncio.wait_for(group.next_outcome(), 20)
    assert not any(map(is_alive, pids))


async def test_a_model_that_is_not_there_fails_the_start_by_name(tmp_path):
    with pytest.raises(StartupFailed, match="no such file or folder; exit code 1"):
        async with group_of(tmp_path / "missing", 1):
            pass


async def test_a_refused_plan_leaves_both_real_ranks_in_step(checkpoint):
    async with group_of(checkpoint, 2) as group:
        writer = PlanWriter(block_size=16)
        wrong = writer.plan(prompts={0: [10**6]})
        group.submit(wrong)
        outcome = await group.next_outcome()
        assert isinstance(outcome, StepRefused)
        assert outcome.kind is RefusalKind.MISMATCH
        assert "token id 1000000, the vocabulary has 301" in outcome.reason
        writer.take_back(wrong)
        group.submit(writer.plan(prompts={0: PROMPTS[0]}))
        assert list((await group.next_outcome()).drawn) == [0]
