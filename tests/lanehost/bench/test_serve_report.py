import json
from dataclasses import replace

import pytest

from lanehost.bench import long_prompt, measured
from lanehost.bench.load import LongRound
from lanehost.bench.measured import Goals
from lanehost.bench.scenarios import Scenario, ServeBench, Served
from lanehost.bench.serve_report import report_lines, report_object
from lanehost.bench.workload import Lengths
from tests.support.bench_client import reply
from tests.support.fake_door import CARD

BENCH = ServeBench(
    scenario=Scenario.CLOSED,
    lengths=Lengths(prompt=(6, 9), reply=(4,)),
    goals=Goals(ttft_s=1.0, itl_s=1.0),
    num_requests=2,
    num_warmup=0,
    seed=3,
    num_streams=1,
)
REPLIES = (
    reply(50.0, [50.25, 50.5, 51.0], prompt_tokens=9, cached_tokens=4),
    reply(51.0, failure="ServerBusy"),
)
LONG_BENCH = replace(BENCH, scenario=Scenario.LONG_PROMPT, long_tokens=99)
ROUND = LongRound(running=(reply(0.0, [1.0, 2.0, 3.5, 6.0]),), long=reply(3.0, [5.0]))
LONG_SERVED = Served(replies=ROUND.running, rounds=(ROUND,))


def lines_of(bench=BENCH, served=None):
    return report_lines(bench, served or Served(replies=REPLIES), CARD)


def row(lines, name):
    return next(line.split() for line in lines if line.startswith(name))


def test_every_figure_has_its_row_in_milliseconds():
    lines = lines_of()
    assert row(lines, "TTFT") == ["TTFT", "1", "250.0", "250.0", "250.0", "250.0", "250.0"]
    assert row(lines, "ITL") == ["ITL", "2", "375.0", "250.0", "500.0", "500.0", "500.0"]
    assert row(lines, "latency")[1:3] == ["1", "1000.0"]
    assert row(lines, "TPOT")[1:3] == ["1", "375.0"]


def test_the_counts_say_what_failed_what_was_good_and_what_was_cached():
    text = "\n".join(lines_of())
    assert "2 requests in 1.00 s, failed: 1 ServerBusy" in text
    assert "goodput: 50.0%, 1.00 requests/s (TTFT within 1 s, every ITL within 1 s)" in text
    assert "cached: 4 of 9 prompt tokens" in text


@pytest.mark.parametrize(
    ("bench", "served", "words"),
    [
        (BENCH, None, set(measured.DEFINITIONS)),
        (LONG_BENCH, LONG_SERVED, {*measured.DEFINITIONS, *long_prompt.DEFINITIONS}),
    ],
)
def test_every_word_is_defined_beside_the_figures(bench, served, words):
    lines = lines_of(bench, served)
    assert all(any(line.startswith(f"  {word}: ") for line in lines) for word in words)
    told = report_object(bench, served or Served(replies=REPLIES), CARD)
    assert set(told["definitions"]) == words


def test_the_first_lines_say_what_was_measured():
    first, second = lines_of()[:2]
    assert first == "fake-model, float32, 1 rank, 4 lanes; lanehost 0.0.0"
    assert second == "closed: 1 streams, prompts of 6/9 tokens, replies of 4; seed 3"
    poisson = replace(BENCH, scenario=Scenario.POISSON, num_streams=None, rate=2.5)
    assert lines_of(poisson)[1].startswith("poisson: 2.5 requests/s at random")


def test_a_long_prompt_is_told_by_its_waits_before_and_during():
    lines = lines_of(LONG_BENCH, LONG_SERVED)
    assert row(lines, "before")[1:3] == ["1", "1000.0"]
    assert row(lines, "during")[1:3] == ["2", "2000.0"]
    expected = "ITL p99 1000.0 ms before, 2500.0 ms during a long prompt: 2.50 times"
    assert expected in lines


def test_the_object_is_json_and_holds_every_arrival_from_the_first_due_on():
    told = json.loads(json.dumps(report_object(BENCH, Served(replies=REPLIES), CARD)))
    assert told["replies"][0]["arrivals"] == [[0.25, 1], [0.5, 1], [1.0, 1]]
    assert told["replies"][1]["failure"] == "ServerBusy"
    assert told["figures"]["ttft"]["p99"] == 0.25
    assert told["bench"]["scenario"] == "closed"
    assert told["model"]["weights_digest"] == CARD.weights_digest
    assert told["long_prompt"] is None


def test_the_object_of_long_prompts_holds_them_apart():
    told = json.loads(json.dumps(report_object(LONG_BENCH, LONG_SERVED, CARD)))
    assert told["long_prompt"]["num_rounds"] == 1
    assert told["long_replies"][0]["arrivals"] == [[5.0, 1]]
    assert len(told["replies"]) == 1


def test_what_was_not_measured_is_a_dash():
    lines = lines_of(served=Served(replies=(reply(0.0, ended_s=1.0, failure="TooLong"),)))
    assert row(lines, "ITL") == ["ITL", "0", "-", "-", "-", "-", "-"]
