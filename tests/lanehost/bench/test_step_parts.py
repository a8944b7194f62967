import json

from lanehost.bench.rates import Rates, StepWork, Weights
from lanehost.bench.step_loop import LoopSettings, StepSample, figures
from lanehost.bench.step_parts import DEFINITIONS, part_lines, part_object, work_of

SETTINGS = LoopSettings(
    lane_counts=(4,), prompt_tokens=64, num_rounds=1, num_steps=20, num_prefills=1, num_warmup=2
)
RATES = Rates(
    num_threads=1,
    weights={
        "products": Weights(num_bytes=1_000_000, num_macs=1),
        "head": Weights(num_bytes=500_000, num_macs=1),
    },
    kv_bytes_per_position=0,
    read_bytes_per_s={1: 1e9},
    ops_per_s={},
)
NATIVE = {"products": 3_000_000, "head": 1_000_000, "sampling": 2_000_000}
PLAIN = {"forward": 4_000_000, "other": 2_000_000}


def found(parts, name="decode 4"):
    sample = StepSample(wall_ns=6_500_000, compute_ns=6_000_000, master_ns=1, parts=parts)
    return [figures(name, 4, alone=[sample], paired=[sample])]


def rows(lines):
    head = next(line.split() for line in lines if line.startswith("ms"))
    step = next(line.split() for line in lines if line.startswith("decode 4 "))
    floor = next(line.split() for line in lines if line.startswith("  floor  "))
    return head[1:], step[2:], floor[1:]


def test_parts_stand_in_order_beside_their_floors_and_the_share_that_was_reached():
    head, step, floor = rows(part_lines(SETTINGS, found(NATIVE), RATES))
    assert head == ["products", "head", "sampling", "step", "reached"]
    assert step == ["3.00", "1.00", "2.00", "6.00"]
    assert floor == ["1.00", "0.50", "1.50", "25%"]


def test_the_floor_of_what_is_not_told_apart_stands_with_the_forward():
    head, step, floor = rows(part_lines(SETTINGS, found(PLAIN), RATES))
    assert head == ["forward", "other", "step", "reached"]
    assert step == ["4.00", "2.00", "6.00"]
    assert floor == ["1.50", "1.50", "25%"]


def test_every_column_is_defined():
    lines = part_lines(SETTINGS, found(NATIVE), RATES)
    for word in (*rows(lines)[0], "floor"):
        assert any(line.startswith(f"  {word}: ") for line in lines)
        assert word in DEFINITIONS


def test_without_rates_there_is_no_floor_and_without_parts_no_table():
    assert not [line for line in part_lines(SETTINGS, found(NATIVE), None) if "floor  " in line]
    assert part_lines(SETTINGS, found({}), RATES) == []


def test_a_part_that_a_step_does_not_name_took_it_no_time():
    samples = [
        StepSample(wall_ns=2, compute_ns=2, master_ns=0, parts=parts)
        for parts in ({"exchange": 9}, {}, {})
    ]
    assert figures("decode 4", 4, alone=samples, paired=samples).parts["exchange"].p50 == 0


def test_a_step_reads_what_its_lanes_hold_and_draws_once_a_lane():
    decode, prefill = found(NATIVE)[0], found(NATIVE, "prefill")[0]
    assert work_of(decode, SETTINGS) == StepWork(num_rows=4, num_draws=4, num_positions=4 * 76)
    assert work_of(prefill, SETTINGS) == StepWork(num_rows=64, num_draws=1, num_positions=64)


def test_the_object_is_json_with_rates_and_floors():
    told = json.loads(json.dumps(part_object(SETTINGS, found(NATIVE), RATES)))
    assert told["floors"]["decode 4"]["parts"]["products"] == 1_000_000
    assert told["floors"]["decode 4"]["reached"] == 0.25
    assert told["rates"]["kv_bytes_per_position"] == 0
    assert part_object(SETTINGS, found(NATIVE), None)["floors"] == {}
