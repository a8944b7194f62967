"""The metrics of a real server under load, read as Prometheus reads them."""

import time
from concurrent.futures import ThreadPoolExecutor
from urllib.request import urlopen

import pytest

from lanehost import Client, errors
from lanehost.client_errors import ClientError
from tests.support.metered import read_page
from tests.support.served import serving

pytestmark = [pytest.mark.model, pytest.mark.ranks, pytest.mark.timeout(300)]
TIMEOUT_S = 60.0
WAIT_AGE = ("lanehost_wait_age_seconds", "foreground", "")
NUM_CLIENTS = 3


def values_of(served):
    with urlopen(f"http://{served.http_address}/metrics", timeout=10) as answer:
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return read_page(answer.read().decode())


def values_when(served, is_so):
    """Read pages until one is as wanted."""
    until_s = time.monotonic() + TIMEOUT_S
    while not is_so(values := values_of(served)):
        assert time.monotonic() < until_s, served.log_text()
    return values


def total(values, name):
    return sum(value for key, value in values.items() if key[0] == f"lanehost_{name}")


def generate(client, number):
    return client.generate(
        f"Count to {number}:", max_tokens=100, ignore_eos=True, temperature=0.5, seed=number
    )


def test_wait_age_rises_under_load_and_falls_to_0_and_the_sums_are_what_clients_saw(tmp_path):
    with (
        serving(tmp_path, "--lanes", "1") as served,
        Client(served.grpc_address) as client,
        ThreadPoolExecutor(NUM_CLIENTS) as pool,
    ):
        idle = values_of(served)
        assert idle["lanehost_serving",] == 1
        assert idle[WAIT_AGE] == total(idle, "requests_waiting") == 0
        asked = [pool.submit(generate, client, number) for number in range(NUM_CLIENTS)]
        first = values_when(served, lambda values: values[WAIT_AGE] > 0)
        assert total(first, "requests_waiting") >= 1
        later = values_when(served, lambda values: values[WAIT_AGE] > first[WAIT_AGE])
        assert later["lanehost_lanes", "free"] == 0
        replies = [one.result() for one in asked]
        after = values_when(served, lambda values: values["lanehost_requests_open",] == 0)
        with pytest.raises(ClientError):
            client.generate("too long", max_tokens=10**6)
        refused = values_of(served)
    assert after[WAIT_AGE] == after["lanehost_step_age_seconds",] == 0
    assert total(after, "requests_accepted_total") == NUM_CLIENTS
    assert after["lanehost_requests_ended_total", "length"] == NUM_CLIENTS
    usages = [reply.usage for reply in replies]
    for name, counts in {
        "prompt_tokens_total": [usage.prompt_tokens for usage in usages],
        "cached_tokens_total": [usage.cached_tokens for usage in usages],
        "generated_tokens_total": [usage.completion_tokens for usage in usages],
    }.items():
        assert after[f"lanehost_{name}", ""] == sum(counts)
    for name in ("queue", "time_to_first_token", "time_per_output_token"):
        assert after[f"lanehost_{name}_seconds_count", "foreground"] == NUM_CLIENTS
    assert after["lanehost_step_compute_seconds_sum",] > 0
    assert after["lanehost_kv_bytes",] > after["lanehost_kv_free_bytes",] > 0
    name = errors.DoesNotFit.__name__
    assert refused["lanehost_requests_refused_total", name] == 1
