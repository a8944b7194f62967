"""The report tells people and machines the same; what was not measured is a dash."""

import json

from lanehost.bench.cache_cost import Cost, FilesSeen
from lanehost.bench.cache_report import DEFINITIONS, report_lines, report_object
from lanehost.bench.cache_tiers import Found, Tier
from tests.lanehost.bench.test_cache_tiers import BENCH
from tests.support.bench_client import reply

FILES = FilesSeen(num_files=2, num_bytes=3200, num_tokens=32)
COST = Cost(
    without=(100.0, 50.0, 80.0),
    saving=(99.0, 49.5, 79.6),
    again=(100.0, 51.0, 80.8),
    files=FILES,
)


def found():
    all_found = Found()
    all_found.turns[Tier.COLD] = [reply(0, [at_s], prompt_tokens=160) for at_s in (2.0, 3.0, 4.0)]
    all_found.turns[Tier.DISK] = [
        reply(0, [at_s], cached_tokens=160, disk_cached_tokens=144) for at_s in (0.1, 0.2, 0.3)
    ]
    all_found.num_missed[Tier.LOSS] = 3
    return all_found


def told(cost=COST):
    lines = report_lines(BENCH, found(), FILES, cost, model="m.gguf", tp=2)
    given = report_object(BENCH, found(), FILES, cost, model="m.gguf", tp=2)
    return lines, json.loads(json.dumps(given))


def test_a_tier_has_its_times_how_much_sooner_it_is_and_where_its_tokens_came_from():
    lines, given = told()
    (row,) = (line.split() for line in lines if line.startswith("disk "))
    assert row == ["disk", "200.0", "300.0", "15.0", "160", "144", "3", "0"]
    disk = given["tiers"]["disk"]
    assert (disk["sooner"], disk["disk_cached_tokens"]) == (15.0, [144, 144, 144])


def test_a_tier_that_gave_nothing_has_dashes_and_its_misses():
    lines, given = told()
    (row,) = (line.split() for line in lines if line.startswith("after a rank loss "))
    assert row[4:] == ["-", "-", "-", "-", "-", "0", "3"]
    assert given["tiers"]["after a rank loss"]["ttft"] is None


def test_bytes_and_the_cost_are_told_with_what_was_asked():
    lines, given = told()
    assert "bytes a token: 200" in lines
    (line,) = (line for line in lines if line.startswith("tokens/s with saving"))
    assert "over without: median 0.990 (quartiles 0.990 to 0.995), without over" in line
    assert "without median 1.010 (quartiles 1.000 to 1.020), 3 rounds of 4 requests in 2" in line
    assert given["bytes_per_token"] == 200
    assert given["cost"]["saving"] == [99.0, 49.5, 79.6]


def test_without_that_load_there_is_no_cost():
    lines, given = told(cost=None)
    assert not [line for line in lines if line.startswith("tokens/s with")]
    assert given["cost"] is None


def test_every_word_of_the_table_is_defined():
    lines, _ = told()
    text = "\n".join(lines)
    for word in DEFINITIONS:
        assert f"  {word}:" in text
