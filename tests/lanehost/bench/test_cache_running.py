"""All of `bench cache`: the tiers, the files, and the cost where it is wanted."""

from dataclasses import replace

import pytest

from lanehost.bench.cache_running import run_cache
from tests.lanehost.bench.test_cache_tiers import BENCH
from tests.support.fake_sides import FakeWorld


@pytest.mark.parametrize("num_requests", [0, 4])
async def test_everything_is_measured_and_told(tmp_path, num_requests):
    said, world = [], FakeWorld()
    bench = replace(BENCH, num_requests=num_requests)
    report = await run_cache(bench, world.new_side, tmp_path, said.append, model="m", tp=1)
    assert said[0] == "3 conversations of 160 tokens"
    assert said.count("asked after a restart") == 3
    assert report.told["tiers"]["disk"]["num_missed"] == 0
    assert report.told["bytes_per_token"] == pytest.approx(10)
    assert (report.told["cost"] is None) == (num_requests == 0)
    assert len(world.sides) == (3 if num_requests else 2)
