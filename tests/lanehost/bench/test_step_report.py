import json

from lanehost.bench.step_loop import LoopSettings, StepSample, figures
from lanehost.bench.step_report import DEFINITIONS, report_lines, report_object
from tests.support.fake_ranks import fake_facts

SETTINGS = LoopSettings(
    lane_counts=(4,), prompt_tokens=64, num_rounds=1, num_steps=1, num_prefills=1, num_warmup=0
)
ALONE = StepSample(wall_ns=12_500_000, compute_ns=10_000_000, master_ns=500_000)
PAIRED = StepSample(wall_ns=10_500_000, compute_ns=10_000_000, master_ns=600_000)
FOUND = [figures("decode 4", 4, alone=[ALONE], paired=[PAIRED])]


def test_the_table_has_every_part_of_a_step_in_milliseconds():
    lines = report_lines(fake_facts(), SETTINGS, FOUND, "tiny.gguf")
    head = next(line.split() for line in lines if line.startswith("ms"))
    row = next(line.split() for line in lines if line.startswith("decode 4 "))
    assert dict(zip(head[1:], row[2:], strict=True)) == {
        "compute": "10.00",
        "wire": "2.00",
        "master": "0.50",
        "alone": "12.50",
        "paired": "10.50",
        "shown": "4.8%",
        "hidden": "80%",
        "tokens/s": "381.0",
    }


def test_every_column_is_defined():
    lines = report_lines(fake_facts(), SETTINGS, FOUND, "tiny.gguf")
    head = next(line.split() for line in lines if line.startswith("ms"))
    assert set(head[1:]) == set(DEFINITIONS)
    assert all(any(line.startswith(f"  {word}: ") for line in lines) for word in DEFINITIONS)


def test_the_object_is_json_with_the_model_what_was_asked_and_the_figures():
    told = json.loads(json.dumps(report_object(fake_facts(), SETTINGS, FOUND, "tiny.gguf")))
    assert told["model"]["name"] == "tiny.gguf"
    assert told["bench"]["prompt_tokens"] == 64
    assert told["figures"][0]["compute"]["p50"] == 10_000_000
