import os

from lanehost.chaos.ends import ended_badly, relaunched_badly, rest_of, start_failed_badly
from lanehost.chaos.rig import Setup
from lanehost.chaos.served import ServedHere

ABSENT = ("--model", "/absent")


async def test_an_end_with_another_code_or_words_is_told():
    async with ServedHere(ABSENT, environment={}) as served:
        assert "it exited with 2, not 0" in (await ended_badly(served, 0))[0]
        assert await ended_badly(served, 2) == []
        assert any("do not name rank 1" in one for one in await start_failed_badly(served, 1))


async def test_a_failed_start_may_name_other_ranks_beside_the_one():
    async with ServedHere(ABSENT, environment={}) as served:
        await served.exited()
        for words, is_named in (("rank 0, 1 still loads", True), ("rank 12, 10 ended", False)):
            served.last_lines.append(words)
            broken = await start_failed_badly(served, 1)
            assert any("do not name" in one for one in broken) is not is_named
            served.last_lines.clear()


async def test_a_rank_that_outlives_its_master_is_told():
    async with ServedHere(ABSENT, environment={}) as served:
        served._take_line(f'{{"event": "rank_spawned", "rank": 0, "pid": {os.getpid()}}}')
        assert await rest_of(served, patience_s=0.1) == [
            "ranks [0] are left 0.1 s after the master"
        ]


async def test_a_server_that_does_not_start_again_is_told():
    async with ServedHere(ABSENT, environment={}) as served:
        broken = await relaunched_badly(Setup(serve_args=ABSENT, tp=1), served)
    assert "it does not start again" in broken[0]
