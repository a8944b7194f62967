"""A drain of a real server, over both doors: announced, then a grace, then refusals."""

import signal
from contextlib import ExitStack, contextmanager

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lanehost import Client
from lanehost.client_errors import ServerUnavailable
from tests.support.served import starting

pytestmark = [pytest.mark.model, pytest.mark.ranks, pytest.mark.timeout(400)]
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@contextmanager
def watched(address):
    """An open Watch of health."""
    with grpc.insecure_channel(address) as channel:
        yield (answer.status for answer in health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(), timeout=120
        ))  # fmt: skip


def ask_http(served, *, max_tokens=8):
    """Ask for a completion over HTTP; greedy, so it has one answer."""
    body = {"model": "SmolLM2-135M-Instruct", "prompt": "Once", "max_tokens": max_tokens}
    return httpx.post(f"http://{served.http_address}/v1/completions", json=body, timeout=120)


def test_health_says_not_serving_first_and_requests_are_still_taken_in_the_grace(tmp_path):
    # A grace that ends with the second signal, and not before.
    with starting(tmp_path, "--http-port", "0", "--drain-grace", "3600") as served:
        served.wait_ready()
        with watched(served.grpc_address) as health, Client(served.grpc_address) as client:
            assert next(health) == SERVING
            alone = client.generate(prompt="Once", max_tokens=8)
            text = ask_http(served).json()["choices"][0]["text"]
            served.process.send_signal(signal.SIGTERM)
            assert next(health) == NOT_SERVING
            assert httpx.get(f"http://{served.http_address}/health").status_code == 503
            assert (
                "lanehost_draining 1.0" in httpx.get(f"http://{served.http_address}/metrics").text
            )
            assert client.generate(prompt="Once", max_tokens=8).token_ids == alone.token_ids
            assert ask_http(served).json()["choices"][0]["text"] == text
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(20) == 4
        assert served.events("drain_started") == []


def test_after_the_grace_new_requests_are_refused_and_open_ones_finish_as_if_nothing_was(tmp_path):
    options = {"prompt": "Once", "max_tokens": 600, "ignore_eos": True}
    with (
        starting(tmp_path, "--http-port", "0", "--drain-grace", "2", "--drain-timeout", "120") as
        served, ExitStack() as stack,
    ):  # fmt: skip
        served.wait_ready()
        client = stack.enter_context(Client(served.grpc_address))
        alone = client.generate(**options)
        body = {"model": "SmolLM2-135M-Instruct", "stream": True, **options}
        url = f"http://{served.http_address}/v1/completions"
        before = stack.enter_context(client.stream(**options))
        next(iter(before))
        served.process.send_signal(signal.SIGTERM)
        served.wait_event("stop_asked")
        in_grace = stack.enter_context(client.stream(**options))
        over_http = stack.enter_context(httpx.stream("POST", url, json=body, timeout=120))
        assert over_http.status_code == 200
        next(iter(in_grace))
        served.wait_event("drain_started")
        with pytest.raises(ServerUnavailable, match="takes no new requests"):
            client.generate(prompt="Once", max_tokens=1)
        refused = ask_http(served)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        for stream in (before, in_grace):
            for _ in stream:
                pass
            assert stream.reply.token_ids == alone.token_ids
        assert streamed_text(over_http) == alone.text
        assert served.process.wait(30) == 0
        assert served.events("drain_timeout") == []


def streamed_text(response):
    """Join what a streamed completion said."""
    lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    chunks = [httpx.Response(200, content=line).json() for line in lines]
    return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])
