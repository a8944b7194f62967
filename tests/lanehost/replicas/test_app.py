"""Two replicas on Ray, end to end: real servers, real streams, real kills.

The tests run in the order of the file, over one Ray: the last ones break it.
"""

import contextlib
import importlib
import json
import subprocess
import sys
import time
import warnings

import psutil
import pytest

from tests.support.ray_served import ray_serving
from tests.support.tiny_folder import write_tiny_folder

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(420),
    # Ray's own.
    pytest.mark.filterwarnings("ignore"),
]
LONG = {"model": "tiny", "max_tokens": 3500, "ignore_eos": True, "stream": True}
HEADS = ["the cat sat on the mat " * 24, "a dog ran to the house " * 24]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = write_tiny_folder(tmp_path_factory.mktemp("tiny"), context=4096)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # What is open may take its time to end, on a busy machine too.
        options = f"--model {folder} --model-name tiny --threads 1 --max-drafts 0 --lanes 8"
        options += " --drain-timeout 300"
        with ray_serving(replicas=2, options=options) as served:
            yield served


def ask(served, prompt, **fields):
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 8, "ignore_eos": True, **fields}
    reply = served.client.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def events(lines):
    return [line.removeprefix("data: ") for line in lines if line]


def wait_until(is_so, *, timeout_s=90.0):
    until_s = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def test_what_runs_on_ray_never_loads_torch():
    program = (
        "import sys, lanehost.replicas.app, lanehost.replicas.router;"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_replies_are_the_servers_own_whole_or_streamed(served):
    assert len(served.servers()) == 2
    body = {"model": "tiny", "prompt": "the cat", "max_tokens": 20, "ignore_eos": True}
    whole = served.client.post("/v1/completions", json=body)
    with served.client.stream("POST", "/v1/completions", json={**body, "stream": True}) as reply:
        said = events(reply.iter_lines())
    assert said[-1] == "[DONE]"
    texts = [json.loads(event)["choices"][0]["text"] for event in said[:-1]]
    assert "".join(texts) == whole.json()["choices"][0]["text"]
    # Ray adds an id of its own behind the server's.
    assert whole.json()["id"] == "cmpl-" + whole.headers.get_list("x-request-id")[0]
    assert whole.headers["x-lanehost-seed"]


def test_refusals_are_the_servers_own(served):
    reply = served.client.post("/v1/completions", json={"model": "no", "prompt": "x"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found")
    reply = served.client.post("/v1/completions", content=b"{")
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")
    assert served.client.get("/health").json() == {"status": "serving"}


def test_prompts_that_begin_alike_find_what_was_computed(served):
    for head in ("where the mouse lives " * 30, "of birds and fish now " * 30):
        first, *later = [ask(served, f"{head}{number}") for number in range(5)]
        assert cached(first) == 0
        assert all(cached(reply) > 0 for reply in later)


def test_a_hot_beginning_spreads_over_both_replicas(served):
    wait_until(served.is_whole)  # a test before may have killed one
    with contextlib.ExitStack() as open_streams:
        for number in range(12):
            body = {**LONG, "prompt": f"{HEADS[0]}{number}"}
            stream = served.client.stream("POST", "/v1/completions", json=body)
            open_streams.enter_context(stream)
        assert sorted(open_requests(served).values()) == [4, 8]  # spill_above
    # Who leaves cancels: nothing of them is left.
    wait_until(lambda: not any(open_requests(served).values()))


def open_requests(served):
    """Return what is open at each server that is there whole."""
    found = {server: served.metric(server, "lanehost_requests_open") for server in served.servers()}
    return {server: num for server, num in found.items() if num is not None}


def test_a_server_killed_in_mid_stream_is_one_named_ending_and_is_replaced(served):
    (left,) = lose(served, lambda server: server)
    assert served.client.get("/health").status_code == 200
    assert ask(served, HEADS[1])
    wait_until(lambda: len(served.servers()) == 2)
    assert left in served.servers()


def test_a_replica_killed_in_mid_stream_takes_its_server_along(served):
    (left,) = lose(served, lambda server: server.parent())
    assert ask(served, HEADS[1])
    wait_until(lambda: len(served.servers()) == 2)
    assert left in served.servers()


def lose(served, victim_of):
    """Kill in mid-stream; returns the servers that are left."""
    wait_until(served.is_whole)
    body = {**LONG, "prompt": HEADS[0]}
    with served.client.stream("POST", "/v1/completions", json=body) as reply:
        lines = reply.iter_lines()
        first = next(lines)
        (server,) = [server for server, num in open_requests(served).items() if num]
        others = [other for other in served.servers() if other != server]
        ranks = server.children()
        victim_of(server).kill()
        *_, last = [first, *events(lines)]
    assert json.loads(last)["error"]["code"] == "replica_lost"
    _, alive = psutil.wait_procs([server, *ranks], timeout=10)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
    return others


def test_what_is_open_when_the_application_is_deleted_still_ends(served):
    serve = importlib.import_module("ray.serve")
    wait_until(served.is_whole)
    body = {**LONG, "prompt": HEADS[0], "max_tokens": 1500}
    with served.client.stream("POST", "/v1/completions", json=body) as reply:
        lines = reply.iter_lines()
        next(lines)
        serve.delete("lanehost", _blocking=False)
        *_, last = events(lines)
    assert last == "[DONE]"
    wait_until(lambda: not served.servers())
    served.deploy()  # for the tests that come later, in whatever order
