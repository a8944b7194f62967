"""Each bench once against the real model, as small as it can be."""

import json
import subprocess
import sys

import pytest

from tests.support.served import serving

pytestmark = [pytest.mark.model, pytest.mark.ranks, pytest.mark.timeout(300)]


def run_bench(tmp_path, *args):
    path = tmp_path / "out.json"
    command = [sys.executable, "-m", "lanehost", "bench", *args, "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text())


def test_a_served_model_is_measured_in_every_scenario(tmp_path):
    with serving(tmp_path) as served:
        where = ("serve", "--address", served.grpc_address, "--warmup", "1")
        short = ("--prompt-tokens", "40", "--reply-tokens", "8")
        closed = run_bench(tmp_path, *where, *short, "--requests", "4", "--streams", "2")
        scenario = ("--scenario", "poisson", "--rate", "5", "--requests", "3")
        poisson = run_bench(tmp_path, *where, *short, *scenario)
        scenario = ("--scenario", "shared-prefix", "--prefix-tokens", "96", "--requests", "4")
        shared = run_bench(tmp_path, *where, *short, *scenario, "--streams", "1")
        scenario = ("--scenario", "long-prompt", "--long-tokens", "600", "--requests", "1")
        long_reply = ("--prompt-tokens", "20", "--reply-tokens", "48", "--streams", "2")
        long = run_bench(tmp_path, *where, *scenario, *long_reply)
    for told, requests in ((closed, 4), (poisson, 3), (shared, 4)):
        assert told["figures"]["num_tokens"] == 8 * requests
        assert told["figures"]["failures"] == {}
        assert told["figures"]["ttft"]["p50"] > 0
    assert closed["figures"]["cached_tokens"] == poisson["figures"]["cached_tokens"] == 0
    # All but the first find the whole prefix.
    assert shared["figures"]["cached_tokens"] == 3 * 96
    assert long["long_prompt"]["before"]["count"] > 0
    assert long["long_prompt"]["during"]["count"] >= 2


def test_the_step_loop_of_the_real_model_is_measured(tmp_path):
    small = ("--prompt-tokens", "48", "--rounds", "2", "--steps", "3", "--prefills", "1")
    told = run_bench(tmp_path, "step", "--lanes", "1,4", *small)
    assert [one["name"] for one in told["figures"]] == ["prefill", "decode 1", "decode 4"]
    for one in told["figures"]:
        assert 0 < one["compute"]["p50"] <= one["paired"]["p50"] * 2
        assert 0 <= one["hidden_share"] <= 1


def test_every_tier_of_the_prompt_cache_is_measured(tmp_path):
    small = ("--tokens", "200", "--turn-tokens", "8", "--rounds", "1", "--folder", str(tmp_path))
    load = ("--requests", "2", "--streams", "2")
    told = run_bench(tmp_path, "cache", *small, *load)
    for name, tier in told["tiers"].items():
        assert tier["num_missed"] == 0, name
        assert tier["ttft"]["count"] == 1
    # Keys and values of 30 layers, 3 heads of 64, in 16 bits; and a header.
    assert 23040 < told["bytes_per_token"] < 24500
    assert told["cost"]["ratios"][0] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_the_real_model_in_float32_is_its_own_reference(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The ferry left the quay at ten past six, a little late. " * 6)
    told = run_bench(
        tmp_path, "quality", "--dtype", "float32", "--window", "64", "--text", str(text)
    )
    figures = told["figures"]
    assert figures["num_positions"] == figures["num_windows"] * 31
    assert figures["most_kl"] == 0.0
    assert figures["same_top_share"] == 1.0
    assert figures["served_perplexity"] == figures["reference_perplexity"] > 1
