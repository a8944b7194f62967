import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lanehost.bench.rates import (
    Rates,
    StepWork,
    Weights,
    best_of,
    floor_ns,
    measure_rates,
    read_rates,
)
from lanehost.errors import StartupFailed
from tests.support.rank_facts import group_settings

RATES = Rates(
    num_threads=2,
    weights={
        "products": Weights(num_bytes=1000, num_macs=2000),
        "head": Weights(num_bytes=500, num_macs=500),
    },
    kv_bytes_per_position=10,
    read_bytes_per_s={1: 5e8, 2: 1e9},
    ops_per_s={"products": 4e9, "head": 1e9},
)
TOLD = {
    "threads": 2,
    "weights": {"products": {"bytes": 1000, "macs": 2000}, "head": {"bytes": 500, "macs": 500}},
    "kv_bytes_per_position": 10,
    "read_bytes_per_s": {"1": 5e8, "2": 1e9},
    "ops_per_s": {"products": 4e9, "head": 1e9},
}
SETTINGS = group_settings(model_path=Path("model"), tp=2, num_threads=1)


def test_at_few_rows_the_floor_is_reading_and_at_many_multiplying():
    one = floor_ns(RATES, StepWork(num_rows=1, num_draws=1, num_positions=20))
    assert one == {"products": 1000, "head": 1000, "attention": 200}
    many = floor_ns(RATES, StepWork(num_rows=8, num_draws=1, num_positions=20))
    assert many == {"products": 8000, "head": 1000, "attention": 200}


def test_without_a_rate_of_products_the_floor_is_reading():
    work = StepWork(num_rows=99, num_draws=99, num_positions=0)
    floor = floor_ns(replace(RATES, ops_per_s={}), work)
    assert floor == {"products": 1000, "head": 500, "attention": 0}


def test_what_was_written_is_read():
    assert read_rates(json.dumps(TOLD)) == RATES


def test_the_best_that_was_seen_counts():
    slower = replace(
        RATES, read_bytes_per_s={1: 1e8, 2: 2e9}, ops_per_s={"products": 1, "head": 9e9}
    )
    best = best_of(RATES, slower)
    assert best is not None
    assert best.read_bytes_per_s == {1: 5e8, 2: 2e9}
    assert best.ops_per_s == {"products": 4e9, "head": 9e9}
    assert best_of(None, RATES) is best_of(RATES, None) is None


def program(text):
    return (sys.executable, "-c", text)


@pytest.mark.ranks
def test_the_program_gets_the_model_and_the_threads_and_an_open_standard_input():
    told = f"""
import select, sys
assert not select.select([0], [], [], 0)[0]
assert sys.argv[2].endswith("/model")
assert sys.argv[-4:] == ["--tp", "2", "--threads", "1"]
print({json.dumps(TOLD)!r})
"""
    assert measure_rates(SETTINGS, program(told)) == RATES


@pytest.mark.ranks
def test_a_program_that_fails_says_why():
    with pytest.raises(StartupFailed, match="no such file"):
        measure_rates(SETTINGS, program('print(\'{"error": "no such file"}\')'))
    with pytest.raises(StartupFailed, match="exit code 7"):
        measure_rates(SETTINGS, program("raise SystemExit(7)"))


def test_another_device_than_the_cpu_is_not_measured():
    assert measure_rates(replace(SETTINGS, device="cuda")) is None
