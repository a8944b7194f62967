"""What the tools wrote is read as they mean it; what they did not write is refused.

The folder `recorded` holds outputs of real runs, on a machine that was busy: they are of use
for their form alone. The model's path is cut short.
"""

from pathlib import Path

import pytest

from bench.peers.outputs import (
    UnknownOutput,
    read_batched_bench,
    read_event,
    read_kl,
    read_llama_bench,
    read_quality,
    read_speeds,
    read_step,
)
from bench.peers.shape import Shape

RECORDED = Path(__file__).with_name("recorded")
SHORT = Shape(prompt_tokens=16, num_steps=2, lane_counts=(1, 4))


def recorded(name):
    return (RECORDED / name).read_text(encoding="utf-8")


def test_llama_bench_tells_of_a_prompt_by_its_tokens_over_the_time_of_all_runs():
    found = read_llama_bench(recorded("llama-bench-prefill.json"), Shape())

    took_ns = 24196566313 + 15528068051 + 19132249175
    assert found == {"prefill": pytest.approx(3 * 256 / took_ns * 1e9)}


def test_llama_bench_tells_of_one_lane_behind_a_prompt():
    found = read_llama_bench(recorded("llama-bench-decode.json"), Shape())

    took_ns = 98750462588 + 91350193852 + 44060752578
    assert found == {"decode 1": pytest.approx(3 * 24 / took_ns * 1e9)}


def test_a_test_of_llama_bench_behind_another_prompt_is_refused():
    with pytest.raises(UnknownOutput, match="no test that was asked for"):
        read_llama_bench(recorded("llama-bench-decode.json"), Shape(prompt_tokens=128))


def test_batched_bench_tells_the_new_tokens_of_all_lanes_a_second():
    found = read_batched_bench(recorded("llama-batched-bench.jsonl"), SHORT)

    assert found == {"decode 1": 0.796844, "decode 4": 1.416351}
    # 4 lanes, 2 tokens each, in 5.648316 s.
    assert found["decode 4"] == pytest.approx(4 * 2 / 5.648316)


def test_a_number_of_lanes_that_batched_bench_left_out_is_refused():
    shape = Shape(prompt_tokens=16, num_steps=2, lane_counts=(1, 4, 8))
    with pytest.raises(UnknownOutput, match="told nothing of decode 8"):
        read_batched_bench(recorded("llama-batched-bench.jsonl"), shape)


def test_the_step_loop_is_read_as_the_mean_of_its_paired_steps_like_the_tools_of_others():
    found = read_step(recorded("bench-step.json"), Shape(lane_counts=(1, 4)))

    assert found["decode 4"] == pytest.approx(4 / 673295251.375 * 1e9)
    assert list(found) == ["prefill", "decode 1", "decode 4"]


def test_the_last_line_with_columns_is_that_of_a_python_peer():
    text = 'Loading weights\n{"prefill": 62.8, "decode 1": 2.2, "decode 4": 4.7}\n'

    found = read_speeds(text, SHORT, "a peer")

    assert found == {"prefill": 62.8, "decode 1": 2.2, "decode 4": 4.7}
    with pytest.raises(UnknownOutput, match="a peer told nothing of prefill, decode 1, decode 4"):
        read_speeds("Loading weights\n", SHORT, "a peer")


# The lines that tools/perplexity/perplexity.cpp writes, by its formats; figures made up.
KL = """
====== Perplexity statistics ======
Mean PPL(Q)                   :   7.696000 ±   0.091000
Mean PPL(base)                :   7.670000 ±   0.090000
====== KL divergence statistics ======
Mean    KLD:   0.002400 ±   0.000100
Maximum KLD:   0.250000
99.9%   KLD:   0.030000
99.0%   KLD:   0.013000
Median  KLD:   0.001400
 1.0%   KLD:  -0.000010
====== Token probability statistics ======
Same top p: 97.300 ± 0.140 %
"""


def test_the_statistics_of_perplexity_are_read_by_name():
    found = read_kl(KL)

    assert (found.mean_kl, found.median_kl, found.p99_kl) == (0.0024, 0.0014, 0.013)
    assert found.same_top_share == pytest.approx(0.973)
    assert (found.perplexity, found.reference_perplexity) == (7.696, 7.67)


def test_statistics_that_lack_a_line_are_refused():
    with pytest.raises(UnknownOutput, match="Median"):
        read_kl(KL.replace("Median", "Middle"))


def test_the_quality_of_lanehost_is_read_into_the_same_numbers():
    text = (
        '{"figures": {"mean_kl": 1.0, "median_kl": 2.0, "p99_kl": 3.0, "same_top_share": 0.5,'
        ' "served_perplexity": 8.0, "reference_perplexity": 7.0}}'
    )

    found = read_quality(text)

    assert (found.mean_kl, found.same_top_share) == (1.0, 0.5)
    assert (found.perplexity, found.reference_perplexity) == (8.0, 7.0)


def test_an_event_tells_how_many_tokens_were_drawn_so_far_whatever_it_lists():
    assert read_event(b'data: {"tokens": [4], "stop": false, "tokens_predicted": 3}\n') == 3
    assert read_event(b'data: {"tokens": [], "stop": true, "tokens_predicted": 16}\n') == 16
    assert read_event(b"3f\r\n") == 0
    assert read_event(b"data: [DONE]\n") == 0


def test_what_is_no_json_is_refused_with_the_tool():
    with pytest.raises(UnknownOutput, match="llama-bench wrote no JSON"):
        read_llama_bench("error: no model", Shape())
