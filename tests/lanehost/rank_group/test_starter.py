"""How a rank is started: what it is told of the network, and what its environment has."""

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from lanehost.rank_group.starter import Doorway, RankStarter, ranks_here
from lanehost.settings import RankPortSettings
from tests.support.fake_engine import settle_loop
from tests.support.processes import is_alive, until
from tests.support.rank_facts import group_settings

SHOW = ("sh", "-c", 'echo "$@" "$LANEHOST_RANK_TOKEN" "$NCCL_SOCKET_IFNAME" > "$0"')
DOORWAY = Doorway(master="10.0.0.1:5", bind_host="10.0.0.2", is_encrypted=True)


async def shown(tmp_path, port, doorway=DOORWAY):
    told = tmp_path / "told"
    starter = RankStarter((*SHOW, str(told)), world_size=2, port=port)
    process = await starter.start(1, doorway, token="secret")
    await process.exited()
    words = told.read_text().split()
    end = words.index("--death-fd")
    return words[:end], words[end + 2 :]


async def test_a_rank_of_one_host_is_told_of_no_network(tmp_path):
    words, environment = await shown(tmp_path, None)
    assert words == ["--master", "10.0.0.1:5", "--rank", "1", "--world-size", "2"]
    assert environment == ["secret"]


async def test_a_rank_of_several_hosts_is_told_where_it_is_and_how_to_prove_itself(tmp_path):
    port = RankPortSettings(host="10.0.0.1", port=5, tls=Path("tls"), interface="eth1")
    words, environment = await shown(tmp_path, port)
    assert " ".join(words) == (
        "--master 10.0.0.1:5 --bind-host 10.0.0.2 --ranks-here 1 --interface eth1 --tls tls "
        "--rank 1 --world-size 2"
    )
    assert environment == ["secret", "eth1"]


async def test_the_master_s_own_rank_dials_loopback_without_certificates(tmp_path):
    port = RankPortSettings(host="10.0.0.1", port=5, tls=Path("tls"))
    doorway = Doorway(master="127.0.0.1:9", bind_host="10.0.0.1", is_encrypted=False)
    words, _ = await shown(tmp_path, port, doorway)
    assert "--tls" not in words


# Says who it is once it has read that, or from its arguments; then it waits.
EITHER = (
    "sh",
    "-c",
    'case " $* " in *" --spare "*) read line; echo "$line";; *) echo "$@";; esac > "$0"; sleep 60',
)


async def said(told):
    await until(lambda: told.exists() and told.read_text().endswith("\n"))
    text = told.read_text()
    told.unlink()
    return text


@asynccontextmanager
async def keeping(tmp_path, *, command=EITHER, keeps_spare=True):
    told = tmp_path / "told"
    starter = RankStarter((*command, str(told)), world_size=2, port=None, keeps_spare=keeps_spare)
    try:
        yield starter, told
    finally:
        await starter.stop()


async def prepared(starter):
    starter.prepare()
    await until(lambda: starter._spare is not None)
    return starter._spare


async def test_the_spare_becomes_the_next_rank_with_what_any_rank_is_told(tmp_path):
    async with keeping(tmp_path) as (starter, told):
        spare = await prepared(starter)
        process = await starter.start(1, DOORWAY, token="secret")
        try:
            assert process is spare
            assert (json.loads(await said(told))) == {
                "argv": ["--master", "10.0.0.1:5", "--rank", "1", "--world-size", "2"],
                "token": "secret",
            }
        finally:
            await process.kill()


async def test_one_spare_is_one_rank_and_the_next_is_started_as_ever(tmp_path):
    async with keeping(tmp_path) as (starter, told):
        spare = await prepared(starter)
        first = await starter.start(0, DOORWAY, token="secret")
        await said(told)
        second = await starter.start(1, DOORWAY, token="secret")
        assert first is spare
        assert second is not spare
        assert "--rank 1" in await said(told)
        for process in (first, second):
            await process.kill()


async def test_a_spare_that_has_ended_delays_nothing_and_is_replaced(tmp_path):
    async with keeping(tmp_path) as (starter, told):
        former = await prepared(starter)
        await former.kill()
        process = await starter.start(1, DOORWAY, token="secret")
        assert "--rank 1" in await said(told)
        assert process is not former
        assert await prepared(starter) is not former
        await process.kill()


async def test_asked_often_there_is_one_spare(tmp_path):
    async with keeping(tmp_path) as (starter, _):
        with capture_logs() as logs:
            for _ in range(3):
                spare = await prepared(starter)
            starter.prepare()
            await asyncio.sleep(0.02)
        assert [one["event"] for one in logs] == ["spare_spawned"]
        assert starter._spare is spare


async def test_the_spare_ends_with_the_rest_also_while_it_is_being_started(tmp_path):
    with capture_logs() as logs:
        async with keeping(tmp_path) as (starter, _):
            starter.prepare()
            await until(lambda: starter._preparing is not None)
    spawned, exited = logs
    assert (spawned["event"], exited["event"]) == ("spare_spawned", "spare_exited")
    assert not is_alive(spawned["pid"])


async def test_without_the_setting_none_is_kept(tmp_path):
    async with keeping(tmp_path, keeps_spare=False) as (starter, _):
        starter.prepare()
        await asyncio.sleep(0.02)
        assert (starter._timer, starter._spare) == (None, None)


@pytest.mark.parametrize(
    ("keeps_spare", "max_restarts", "has_one"),
    [(True, 1, True), (True, 0, False), (False, 1, False)],
)
async def test_a_group_whose_ranks_are_never_replaced_has_no_spare(
    keeps_spare, max_restarts, has_one
):
    settings = group_settings(keeps_spare=keeps_spare, max_restarts=max_restarts)
    starter = RankStarter.for_group(settings, ("sleep", "60"))
    starter.prepare()
    assert (starter._timer is not None) == has_one
    await starter.stop()


async def test_a_spare_for_later_is_not_there_at_once_and_none_is_left_when_all_stop(tmp_path):
    async with keeping(tmp_path) as (starter, _):
        with capture_logs() as logs:
            starter.prepare(after_s=60)
            await settle_loop()
        assert not logs
        assert starter._timer is not None
    assert starter._timer.cancelled()


async def test_a_spare_that_cannot_be_started_is_said_and_nothing_else(tmp_path):
    async with keeping(tmp_path, command=("/no/such/program",)) as (starter, _):
        with capture_logs() as logs:
            starter.prepare()
            await until(lambda: logs)
        assert logs[0]["event"] == "spare_not_spawned"
        assert "/no/such/program" in logs[0]["reason"]


@pytest.mark.parametrize(
    ("port", "num"),
    [
        (RankPortSettings(host="127.0.0.1", port=1), 2),
        (RankPortSettings(host="10.0.0.1", port=1), 1),
        (RankPortSettings(host="10.0.0.1", port=1, ranks_here=2), 2),
    ],
)
def test_ranks_share_a_host_where_that_was_told_or_where_the_master_is_on_loopback(port, num):
    assert ranks_here(port, 2) == num
