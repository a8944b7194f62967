"""The whole group with rank processes of arithmetic: start, faults in any phase, the end."""

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
import structlog

from lanehost.errors import RankGroupLost, StartupFailed
from lanehost.rank_group.facts import LoadPhase
from lanehost.rank_group.supervisor import running_rank_group
from ranks.plan import RefusalKind, StepRefused
from tests.support.plan_writer import PlanWriter
from tests.support.processes import all_end, is_alive, num_open_files, unhindered_s
from tests.support.rank_facts import group_settings
from tests.support.rank_process import EXIT_BY_ITSELF, rank_command

pytestmark = pytest.mark.ranks
LOST_WITHIN_S = 1.0
GONE_WITHIN_S = 2.0
MASTER_SCRIPT = Path(__file__).parents[2] / "support" / "small_master.py"


def group_of(behaviour="ok", *, on_progress=lambda _: None, report_interval_s=10.0, **settings):
    return running_rank_group(
        group_settings(**settings),
        on_progress=on_progress,
        rank_command=rank_command(behaviour),
        report_interval_s=report_interval_s,
    )


def spawned_pids(logs):
    return [entry["pid"] for entry in logs if entry["event"] == "rank_spawned"]


async def start_fails(behaviour, **settings):
    """Start a group that cannot; returns what was said, and sees that nothing is left."""
    with structlog.testing.capture_logs() as logs, pytest.raises(StartupFailed) as failed:
        async with group_of(behaviour, **settings):
            pass
    pids = spawned_pids(logs)
    assert pids
    assert not any(map(is_alive, pids))
    return str(failed.value), logs


async def run(group, plan):
    group.submit(plan)
    return await group.next_outcome()


@pytest.mark.parametrize("tp", [1, 2])
async def test_plans_go_in_and_tokens_come_out(tp):
    async with group_of(tp=tp) as group:
        writer = PlanWriter(block_size=16)
        first = await run(group, writer.plan(prompts={0: [1, 2, 3], 5: [10]}))
        assert first.drawn == {0: (6 * 7 + 3), 5: (10 * 7 + 1)}
        second = await run(group, writer.plan(decodes=(5, 0)))
        assert second.drawn == {5: ((10 + 71) * 7 + 2) % 1000, 0: ((6 + 45) * 7 + 4) % 1000}


async def test_a_second_plan_is_in_flight_before_the_first_has_an_outcome():
    async with group_of() as group:
        writer = PlanWriter(block_size=16)
        group.submit(writer.plan(prompts={0: [1, 2, 3]}))
        group.submit(writer.plan(decodes=(0,)))
        assert [(await group.next_outcome()).drawn[0] for _ in range(2)] == [45, 361]


async def test_a_plan_that_does_not_fit_is_refused_by_all_and_the_group_goes_on():
    async with group_of() as group:
        writer = PlanWriter(block_size=16)
        plan = writer.plan(prompts={99: [1]})
        outcome = await run(group, plan)
        assert isinstance(outcome, StepRefused)
        assert "lane 99 joins, there are lanes 0 to 15" in outcome.reason
        behind = await run(group, writer.plan(prompts={0: [1]}))
        assert (outcome.kind, behind.kind) == (RefusalKind.MISMATCH, RefusalKind.SKIPPED)
        writer.take_back(plan)
        assert (await run(group, writer.plan(prompts={0: [1]}))).drawn == {0: 8}


async def test_the_start_tells_how_far_it_is():
    states = []
    async with group_of(on_progress=states.append):
        pass
    phases = list(dict.fromkeys(state.phase for state in states))
    assert phases == list(LoadPhase)
    assert (states[-1].num_loaded, states[-1].done_bytes, states[-1].total_bytes) == (2, 200, 200)


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        ("exit-at-once", f"ended before its Hello, exit code {EXIT_BY_ITSELF}"),
        (
            "raise-in-load-on-1",
            "rank 1 failed: RuntimeError: raised in load on purpose; exit code 1",
        ),
        (
            "raise-in-form-on-0",
            "rank 0 failed: RuntimeError: raised in form on purpose; exit code 1",
        ),
        ("exit-in-load-on-1", f"rank 1 ended its stream; exit code {EXIT_BY_ITSELF}"),
        ("old-build-on-1", "rank 1 runs build 0.0.0, the master runs "),
        (
            "other-weights",
            "ranks disagree on weights_digest: rank 0 has 'arithmetic', rank 1 has 'other'",
        ),
    ],
)
async def test_a_rank_that_cannot_start_fails_the_start_by_name(behaviour, says):
    said, _ = await start_fails(behaviour)
    assert says in said


async def test_a_pool_that_does_not_fit_the_smallest_rank_fails_the_start_with_the_numbers():
    # The second rank has half a GiB free, and a block takes 1 KiB.
    asked = ((1 << 29) // 1024 + 1) * 16
    said, _ = await start_fails("ok", kv_tokens=asked)
    assert said == (
        f"--kv-tokens is {asked}: rank 1 needs {(1 << 29) + 1024} bytes for its KV pool and "
        f"{(1 << 20) + 64 * 256} for a step, it has {1 << 29} free and may take 90% of them"
    )


async def test_missing_ranks_are_named_again_and_again_until_the_limit():
    said, logs = await start_fails("silent-on-1", load_timeout_s=8.0, report_interval_s=0.3)
    assert said == ("not ready within --load-timeout 8.0 s: have 1 of 2 ranks, missing rank 1")
    reports = [entry["status"] for entry in logs if entry["event"] == "ranks_awaited"]
    assert "have 1 of 2 ranks, missing rank 1" in reports
    assert len(reports) >= 2


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("behaviour", ["ok", "hang-in-step-on-0"])
async def test_a_killed_rank_ends_the_wait_within_a_second_and_nothing_is_left(victim, behaviour):
    with structlog.testing.capture_logs() as logs:
        async with group_of(behaviour, stop_timeout_s=1.0) as group:
            if behaviour != "ok":
                group.submit(PlanWriter(block_size=16).plan(prompts={0: [1]}))
            outcome = asyncio.create_task(group.next_outcome())
            await asyncio.sleep(0)
            killed_at = unhindered_s()
            os.kill(spawned_pids(logs)[victim], signal.SIGKILL)
            with pytest.raises(RankGroupLost) as lost:
                await asyncio.wait_for(outcome, 5)
            assert unhindered_s() - killed_at < LOST_WITHIN_S
            assert lost.value.rank == victim
            assert await group.lost() is lost.value
    assert not any(map(is_alive, spawned_pids(logs)))


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        ("raise-in-step-on-1", "rank 1 failed: RuntimeError: raised in step on purpose"),
        ("exit-in-step-on-1", "rank 1 "),
        ("drift-on-1", "out of step: step 1 gave digest"),
        ("refuse-on-1", "out of step: rank 1 refused step 1 that others ran: on purpose"),
    ],
)
async def test_a_rank_that_fails_in_a_step_loses_the_group_by_name(behaviour, says):
    async with group_of(behaviour) as group:
        group.submit(PlanWriter(block_size=16).plan(prompts={0: [1]}))
        with pytest.raises(RankGroupLost, match=says):
            await asyncio.wait_for(group.next_outcome(), 5)


@pytest.mark.parametrize("behaviour", ["silent-on-1", "hang-in-load", "hang-in-form", "ok"])
async def test_cancelled_in_any_phase_nothing_is_left(behaviour):
    reached = asyncio.Event()
    wanted = {
        "silent-on-1": lambda s: s.num_connected == 1,
        "hang-in-load": lambda s: s.done_bytes == 100,
        "hang-in-form": lambda s: s.phase is LoadPhase.FORMING,
        "ok": lambda s: s.phase is LoadPhase.READY,
    }[behaviour]

    async def hold():
        async with group_of(behaviour, on_progress=lambda s: reached.set() if wanted(s) else None):
            await asyncio.Event().wait()

    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(hold())
        await asyncio.wait_for(reached.wait(), 10)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(spawned_pids(logs)) == 2
    assert not any(map(is_alive, spawned_pids(logs)))


async def test_cancelled_before_all_are_spawned_nothing_is_left():
    async def hold():
        async with group_of("hang-in-load"):
            await asyncio.Event().wait()

    for turns in range(0, 12, 2):
        with structlog.testing.capture_logs() as logs:
            task = asyncio.create_task(hold())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert not any(map(is_alive, spawned_pids(logs)))


async def test_a_rank_in_a_call_that_holds_the_interpreter_is_killed_at_the_stop(tmp_path):
    # Opening a named pipe waits for its other end: so the test knows where the ranks are.
    pipes = [tmp_path / str(rank) for rank in (0, 1)]
    for pipe in pipes:
        os.mkfifo(pipe)
    started = unhindered_s()
    with structlog.testing.capture_logs() as logs:
        async with group_of("seize-in-step", model_path=tmp_path, stop_timeout_s=0.5) as group:
            group.submit(PlanWriter(block_size=16).plan(prompts={0: [1]}))
            for pipe in pipes:
                await asyncio.to_thread(pipe.read_bytes)
    assert not any(map(is_alive, spawned_pids(logs)))
    assert unhindered_s() - started < 8
    # A rank that TERM met before it took the interpreter has ended by itself.
    assert -signal.SIGKILL in [e["exit_code"] for e in logs if e["event"] == "rank_exited"]


async def test_two_groups_at_once_do_not_disturb_each_other():
    async with group_of() as first, group_of() as second:
        writers = PlanWriter(block_size=16), PlanWriter(block_size=16)
        for group, writer, token in ((first, writers[0], 1), (second, writers[1], 2)):
            assert (await run(group, writer.plan(prompts={0: [token]}))).drawn == {0: token * 7 + 1}


async def test_start_and_stop_leave_no_descriptor_and_no_thread():
    def footprint():
        # But for the event loop's own pool, which grows to its size as it is used.
        own = [one for one in threading.enumerate() if not one.name.startswith("asyncio_")]
        return num_open_files(), len(own)

    async with group_of():
        pass
    before = footprint()
    for _ in range(4):
        async with group_of():
            pass
    assert footprint() == before


@pytest.mark.parametrize("phase", ["load", "form", "step", "idle"])
@pytest.mark.parametrize("how", ["hang", "seize"])
async def test_when_the_master_is_killed_its_ranks_are_gone_within_two_seconds(phase, how):
    behaviour = "ok" if phase == "idle" else f"{how}-in-{phase}"
    master = await asyncio.create_subprocess_exec(
        sys.executable,
        str(MASTER_SCRIPT),
        behaviour,
        phase,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(MASTER_SCRIPT.parents[2])},
    )
    try:
        async with asyncio.timeout(20):
            pids = [int(word) for word in (await master.stdout.readline()).split()]
        assert len(pids) == 2
        assert all(map(is_alive, pids))
    finally:
        master.kill()
        await master.wait()
    assert await asyncio.to_thread(all_end, pids, within_s=GONE_WITHIN_S)
