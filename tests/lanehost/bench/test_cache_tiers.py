"""Each tier is asked where it is due, and what did not come from it is in no figure."""

from dataclasses import replace

import pytest

from lanehost.bench.cache_tiers import CacheBench, Tier, measure_tiers
from lanehost.client_errors import ServerBusy, Status
from lanehost.errors import StartupFailed
from tests.support.fake_sides import COLD_S, DISK_S, MEMORY_S, FakeWorld

BENCH = CacheBench(
    num_tokens=160, turn_tokens=8, num_rounds=3, num_requests=4, num_streams=2, seed=1,
    block_size=16,
)  # fmt: skip
TIMES = {
    Tier.COLD: COLD_S,
    Tier.MEMORY: MEMORY_S,
    Tier.DISK: DISK_S,
    Tier.RESTART: DISK_S,
    Tier.LOSS: DISK_S,
}


async def test_every_tier_is_asked_in_every_round_and_gives_its_own_time(tmp_path):
    world, asked = FakeWorld(), []
    found = await measure_tiers(BENCH, world.new_side, tmp_path, asked.append)
    assert sorted(asked, key=list(Tier).index) == [tier for tier in Tier for _ in range(3)]
    for tier, time_s in TIMES.items():
        times = [turn.ttft_s for turn in found.turns[tier]]
        assert times == pytest.approx([time_s] * 3)
        assert found.num_missed[tier] == 0
    assert [side.num_losses for side in world.sides] == [0, 1]


async def test_a_turn_that_does_not_find_what_its_tier_should_have_is_a_miss(tmp_path):
    world = FakeWorld()

    def forget(tier):
        if tier is Tier.MEMORY:
            world.disk.clear()

    found = await measure_tiers(BENCH, world.new_side, tmp_path, forget)
    assert (len(found.turns[Tier.DISK]), found.num_missed[Tier.DISK]) == (0, 3)
    assert len(found.turns[Tier.MEMORY]) == 3


async def test_when_nothing_is_saved_the_bench_says_so(tmp_path):
    bench = replace(BENCH, saved_timeout_s=0.1)
    with pytest.raises(StartupFailed, match="no prefix was saved"):
        await measure_tiers(bench, FakeWorld(saves=False).new_side, tmp_path)


async def test_a_turn_that_fails_ends_the_bench(tmp_path):
    error = ServerBusy(Status(code=None, message="full"))
    with pytest.raises(ServerBusy):
        await measure_tiers(BENCH, FakeWorld(fails=error).new_side, tmp_path)


def test_the_pool_holds_two_conversations_and_no_third():
    assert BENCH.kv_tokens >= 2 * (BENCH.num_tokens + BENCH.turn_tokens)
    assert BENCH.kv_tokens < 3 * BENCH.num_tokens
