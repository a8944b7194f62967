"""Envoy with the configuration of the manifests, in front of two real servers."""

import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from lanehost import Client
from tests.support.ray_served import free_port
from tests.support.served import starting
from tests.support.tiny_folder import write_tiny_folder

pytestmark = [pytest.mark.envoy, pytest.mark.ranks, pytest.mark.timeout(180)]
CONFIGURATION = Path(__file__).parents[2] / "launch/kubernetes/replicas/envoy.yaml"
ENVOY = Path(sys.executable).with_name("envoy")
PROMPT = "the cat sat on the mat " * 8
ACCEPTED = "lanehost_requests_accepted_total"
STARTS_WITHIN_S = 60.0


def on_loopback(ports, servers):
    """The same configuration with other addresses, and nothing else."""
    value = yaml.safe_load(CONFIGURATION.read_text())
    resources = value["static_resources"]
    for listener in resources["listeners"]:
        listener["address"]["socket_address"] = {
            "address": "127.0.0.1",
            "port_value": ports[listener["name"]],
        }
    for cluster in resources["clusters"]:
        door = cluster["name"].removeprefix("servers_")
        addresses = [getattr(server, f"{door}_address").rsplit(":", 1) for server in servers]
        cluster["load_assignment"]["endpoints"][0]["lb_endpoints"] = [
            {
                "endpoint": {
                    "address": {"socket_address": {"address": host, "port_value": int(port)}}
                }
            }
            for host, port in addresses
        ]
    return yaml.safe_dump(value)


@contextmanager
def balancing(tmp_path, servers):
    ports = {"grpc": free_port(), "http": free_port()}
    file = tmp_path / "envoy.yaml"
    file.write_text(on_loopback(ports, servers))
    command = [str(ENVOY), "--config-path", str(file), "--concurrency", "1", "-l", "warning"]
    with (tmp_path / "envoy.log").open("wb") as log:
        process = subprocess.Popen([*command, "--use-dynamic-base-id"], stderr=log, stdout=log)
        try:
            yield f"127.0.0.1:{ports['grpc']}", f"http://127.0.0.1:{ports['http']}"
        finally:
            process.terminate()
            process.wait(20)


@pytest.fixture
def http():
    # One for all: each loads certificates that no test needs.
    with httpx.Client(verify=False, trust_env=False, timeout=30) as client:
        yield client


def wait_for(http, url):
    until_s = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            if http.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < until_s
        time.sleep(0.05)


def requests_of(http, server):
    page = http.get(f"http://{server.http_address}/metrics").text
    lines = [line for line in page.splitlines() if line.startswith(ACCEPTED)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def complete(http, url, affinity):
    body = {"model": "tiny", "prompt": f"{affinity} {PROMPT}", "max_tokens": 4}
    headers = {"x-lanehost-affinity": affinity}
    reply = http.post(f"{url}/v1/completions", json=body, headers=headers)
    assert reply.status_code == 200, reply.text
    return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_the_configuration_as_it_is_is_valid():
    checked = subprocess.run(
        [str(ENVOY), "--mode", "validate", "-c", str(CONFIGURATION)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def test_one_affinity_is_one_server_on_both_doors_and_a_lost_server_s_share_goes_on(tmp_path, http):
    folder = write_tiny_folder(tmp_path / "tiny", context=1024)
    options = ["--model", str(folder), "--model-name", "tiny", "--threads", "1", "--http-port", "0"]
    with ExitStack() as stack:
        servers = [stack.enter_context(starting(tmp_path, *options)) for _ in range(2)]
        for server in servers:
            server.wait_ready()
        grpc_address, url = stack.enter_context(balancing(tmp_path, servers))
        wait_for(http, url)
        assert http.get(f"{url}/balancer-ready").status_code == 200
        names = [f"chat-{number}" for number in range(12)]
        for name in names:
            before = [requests_of(http, server) for server in servers]
            cached = [complete(http, url, name) for _ in range(3)]
            after = [requests_of(http, server) for server in servers]
            asked = [now - then for now, then in zip(after, before, strict=True)]
            assert sorted(asked) == [0, 3]
            assert cached[0] == 0
            assert min(cached[1:]) > 0
        # Both have a share of the names.
        assert all(requests_of(http, server) for server in servers)
        with Client(grpc_address) as client:
            assert client.generate(PROMPT, max_tokens=4).token_ids
        servers[0].process.kill()
        servers[0].process.wait()
        # Connections that fail go to another server, with or without its health being known.
        for name in names:
            complete(http, url, name)
