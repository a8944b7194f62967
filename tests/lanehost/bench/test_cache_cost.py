"""Saving and not saving are measured in turn; files are read for what they say."""

import pytest

from lanehost.bench.cache_cost import Cost, FilesSeen, measure_cost, see_files
from lanehost.client_errors import ServerBusy, Status
from tests.lanehost.bench.test_cache_tiers import BENCH
from tests.support.fake_sides import COLD_S, FakeWorld, write_file


async def test_both_sides_get_the_same_load_and_one_of_them_saves(tmp_path):
    world = FakeWorld()
    cost = await measure_cost(BENCH, world.new_side, tmp_path)
    assert cost.without == pytest.approx([(256 + 64) / COLD_S] * 3)
    assert len(cost.saving) == len(cost.ratios) == 3
    assert ["--disk-cache" in side.options for side in world.sides] == [False, True]
    # The warm-up is written as well.
    assert cost.files.num_files == 4 * 4


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
    cost = Cost(without=(100.0, 50.0), saving=(99.0, 51.0), files=files)
    assert cost.ratios == pytest.approx([0.99, 1.02])
