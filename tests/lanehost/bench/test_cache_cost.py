"""Saving and not saving are measured in turn; files are read for what they say."""

import pytest

from lanehost.bench.cache_cost import Cost, FilesSeen, measure_cost, see_files
from lanehost.client_errors import ServerBusy, Status
from tests.lanehost.bench.test_cache_tiers import BENCH
from tests.support.fake_sides import COLD_S, FakeWorld, write_file


async def test_one_server_gets_the_same_load_in_turn_and_saves_a_third_of_it(tmp_path):
    world = FakeWorld()
    cost = await measure_cost(BENCH, world.new_side, tmp_path)
    assert cost.without == cost.again == pytest.approx([(256 + 64) / COLD_S] * 3)
    assert len(cost.saving) == len(cost.ratios) == len(cost.noise) == 3
    (side,) = world.sides
    assert "--disk-cache" in side.options
    # In each round, the warm-up included, one part of three is written.
    assert cost.files.num_files == 4 * BENCH.num_requests
    asked = [ask.disk_cache for ask in world.asks]
    assert asked.count("full") * 2 == asked.count("off") == 8 * BENCH.num_requests


async def test_who_goes_first_changes_with_the_round(tmp_path):
    world = FakeWorld()
    await measure_cost(BENCH, world.new_side, tmp_path)
    begun = [ask.disk_cache for ask in world.asks[:: BENCH.num_requests]]
    places = [begun[at : at + 3].index("full") for at in range(0, len(begun), 3)]
    assert set(places) == {0, 1, 2}


async def test_a_request_that_fails_ends_it(tmp_path):
    error = ServerBusy(Status(code=None, message="full"))
    with pytest.raises(ServerBusy):
        await measure_cost(BENCH, FakeWorld(fails=error).new_side, tmp_path)


def test_files_are_counted_with_what_they_cover(tmp_path):
    assert see_files(tmp_path) == FilesSeen(num_files=0, num_bytes=0, num_tokens=0)
    for number, tokens in enumerate((16, 48)):
        write_file(tmp_path, number, num_tokens=tokens, num_bytes=100 * tokens)
    seen = see_files(tmp_path)
    assert seen == FilesSeen(num_files=2, num_bytes=6400, num_tokens=64)
    assert seen.bytes_per_token(1) == 100
    assert seen.bytes_per_token(2) == 200
    assert FilesSeen(num_files=0, num_bytes=0, num_tokens=0).bytes_per_token(1) is None


def test_a_ratio_is_of_one_round():
    files = FilesSeen(num_files=0, num_bytes=0, num_tokens=0)
    cost = Cost(without=(100.0, 50.0), saving=(99.0, 51.0), again=(101.0, 50.0), files=files)
    assert cost.ratios == pytest.approx([0.99, 1.02])
    assert cost.noise == pytest.approx([1.01, 1.0])
