"""A rank of another host: its agent holds it for the master, whatever either of them meets."""

import asyncio
import os
import signal
import socket

import pytest
from structlog.testing import capture_logs

from lanehost.errors import StartupFailed
from lanehost.rank_group import agent as agent_module
from lanehost.rank_group.agent import Dismissed, Lost, Refused, why_unreachable
from lanehost.settings import RankPortSettings
from tests.support.followed import hosts
from tests.support.plan_writer import PlanWriter
from tests.support.processes import all_end, is_alive, until

pytestmark = pytest.mark.ranks


def pid_of_rank_1(logs):
    told = [one for one in logs if one["event"] == "rank_spawned" and one["rank"] == 1]
    return told[-1]["pid"]


async def step_of(group):
    group.submit(PlanWriter(block_size=16, epoch=group.facts.epoch).plan(prompts={0: [1]}))
    return (await group.next_outcome()).drawn


async def test_its_rank_runs_steps_and_all_end_in_order_with_the_master():
    with capture_logs() as logs:
        async with hosts() as group_of:
            following = await group_of.following()
            assert await step_of(await group_of.next_group())
            pid = pid_of_rank_1(logs)
            await group_of.end()
            outcome = await asyncio.wait_for(following, 30)
    assert outcome == Dismissed("the master was told to end", is_failure=False)
    assert all_end([pid], within_s=10)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_rank_that_is_killed_or_stopped_there_is_replaced(how):
    with capture_logs() as logs:
        async with hosts() as group_of:
            await group_of.following()
            await group_of.next_group()
            former = pid_of_rank_1(logs)
            os.kill(former, how)
            group = await group_of.next_group()
            assert group.facts.epoch == 2
            assert await step_of(group)
            assert not is_alive(former)


async def test_a_host_that_is_to_keep_a_spare_has_one_some_time_after_its_rank(monkeypatch):
    monkeypatch.setattr(agent_module, "FIRST_SPARE_AFTER_S", 0.01)
    with capture_logs() as logs:
        async with hosts() as group_of:
            await group_of.following(keeps_spare=True)
            await group_of.next_group()
            await until(lambda: [one for one in logs if one["event"] == "spare_spawned"])
    pids = [one["pid"] for one in logs if one["event"] in ("spare_spawned", "rank_spawned")]
    assert not any(map(is_alive, pids))


async def test_without_its_agent_the_rank_is_gone_and_a_fresh_agent_brings_another():
    with capture_logs() as logs:
        async with hosts() as group_of:
            first = await group_of.following()
            await group_of.next_group()
            former = pid_of_rank_1(logs)
            first.cancel()
            await asyncio.wait({first})
            assert not is_alive(former)
            waits = "have 1 of 2 ranks, missing rank 1; no agent has dialled for rank 1"
            await until(lambda: any(waits in one.get("status", "") for one in logs))
            await group_of.following()
            group = await group_of.next_group()
            assert group.facts.epoch == 2
            assert await step_of(group)


async def test_who_is_missing_is_named_until_the_limit_and_the_start_fails():
    with capture_logs() as logs:
        async with hosts(load_timeout_s=3) as group_of:
            with pytest.raises(
                StartupFailed, match=r"missing rank (0, )?1; no agent has dialled for"
            ):
                await asyncio.wait_for(group_of.supervisor, 30)
    assert any(one["event"] == "ranks_awaited" for one in logs)


async def test_a_second_agent_of_a_rank_is_refused_with_both_hosts():
    async with hosts() as group_of:
        await group_of.following()
        await group_of.next_group()
        refused = await (await group_of.agent()).follow()
        host, pid = socket.gethostname(), os.getpid()
        assert refused == Refused(
            f"rank 1 is followed on {host} (pid {pid}) already, {host} (pid {pid}) asks for it too"
        )


async def test_a_rank_that_loaded_something_else_is_refused_and_the_agent_hears_why():
    async with hosts("other-weights") as group_of:
        following = await group_of.following("other-weights")
        with pytest.raises(StartupFailed, match="ranks disagree on weights_digest"):
            await asyncio.wait_for(group_of.supervisor, 30)
        outcome = await asyncio.wait_for(following, 30)
    assert isinstance(outcome, Dismissed)
    assert outcome.is_failure
    assert "rank 0 has 'arithmetic', rank 1 has 'other'" in outcome.reason


async def test_a_rank_that_cannot_be_started_there_fails_the_start_with_its_reason():
    async with hosts() as group_of:
        agent = await group_of.agent()
        agent._starter._command = ("/no/such/program",)
        following = asyncio.create_task(agent.follow())
        with pytest.raises(StartupFailed, match=r"rank 1 cannot be started: .*No such file"):
            await asyncio.wait_for(group_of.supervisor, 30)
        assert isinstance(await asyncio.wait_for(following, 30), Dismissed)


async def test_where_nobody_listens_the_reason_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        host, port = taken.getsockname()
    master = RankPortSettings(host=host, port=port)
    assert await why_unreachable(master) == "Connection refused"


async def test_an_agent_that_finds_no_master_says_that_it_never_joined():
    async with hosts() as group_of:
        agent = await group_of.agent()
        await group_of.close()
        outcome = await agent.follow()
    assert outcome == Lost("Connection refused", has_joined=False)
