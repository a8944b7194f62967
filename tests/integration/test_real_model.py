"""The embedded model, served by real ranks over real gRPC, against the reference.

Replies do not depend on who shares the batch, nor on one rank or two: the float32 path
computes every row alike (ADR 2), so what is compared here is compared without exception
between runs of lanehost, and with the near-tie exception against the reference.
"""

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from lanehost import Client, Reply
from tests.support.cases import near_ties_used, reference_cases
from tests.support.served import Served, serving

pytestmark = [pytest.mark.model, pytest.mark.ranks, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def served_on(tmp_path_factory):
    """The number of ranks → a server, which is kept: it costs nothing while nobody asks."""
    folder = tmp_path_factory.mktemp("served")
    options = ("--dtype", "float32", "--threads", "1")
    with ExitStack() as running:

        @cache
        def start(tp):
            return running.enter_context(serving(folder, *options, "--tp", str(tp)))

        yield start


@pytest.fixture(params=[1, 2], ids=["tp1", "tp2"])
def served(served_on, request):
    return served_on(request.param)


@pytest.fixture
def client(served):
    with Client(served.grpc_address) as opened:
        yield opened


def greedy(client: Client, prompt_ids, max_tokens) -> Reply:
    return client.generate(token_ids=prompt_ids, max_tokens=max_tokens, ignore_eos=True)


# On two ranks they are compared in company by default, which takes a fifth of the time. That a
# reply is the same alone and in company, on one rank and on two, other prompts show below.
ALONE = [pytest.param(1, id="tp1"), pytest.param(2, id="tp2", marks=pytest.mark.soak)]


@pytest.mark.parametrize("served", ALONE, indirect=True)
def test_each_reference_case_alone_equals_token_for_token(client):
    used = [
        near_ties_used(case, list(greedy(client, case.prompt_ids, 48).token_ids))
        for case in reference_cases()
    ]
    print(f"near ties met: {sum(used)} of {len(used)} cases")


def test_all_reference_cases_at_once_equal_token_for_token(client):
    cases = reference_cases()
    with ThreadPoolExecutor(len(cases)) as pool:
        replies = list(pool.map(lambda case: greedy(client, case.prompt_ids, 48), cases))
    used = [
        near_ties_used(case, list(reply.token_ids))
        for case, reply in zip(cases, replies, strict=True)
    ]
    print(f"near ties met: {sum(used)} of {len(used)} cases")


def mixed_requests(count: int, seed: int):
    """Requests of mixed lengths: prompts of 1 to 200 ids, replies of 4 to 32, greedy or not."""
    rng = random.Random(seed)
    return [
        {
            "token_ids": [rng.randrange(17, 40000) for _ in range(rng.choice((1, 5, 30, 90, 200)))],
            "max_tokens": rng.randint(4, 32),
            "temperature": rng.choice((0.0, 0.0, 0.8)),
            "top_p": rng.choice((1.0, 0.9)),
            "seed": rng.randrange(1000),
            "ignore_eos": True,
        }
        for _ in range(count)
    ]


SIXTEEN = mixed_requests(16, seed=1)


@pytest.fixture(scope="module")
def solo(served_on):
    """The reply to each of them by itself, on one rank."""
    with Client(served_on(1).grpc_address) as client:
        return [client.generate(**request) for request in SIXTEEN]


def test_sixteen_clients_at_once_get_the_replies_of_their_solo_runs(client, solo):
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda request: client.generate(**request), SIXTEEN))
    differing = [
        number
        for number, (alone, shared) in enumerate(zip(solo, together, strict=True))
        if alone.token_ids != shared.token_ids
    ]
    print(f"replies that differ from their solo run: {len(differing)} of 16")
    assert differing == []
    for request, alone in zip(SIXTEEN[:4], solo, strict=False):
        assert client.generate(**request).token_ids == alone.token_ids


def test_after_random_cancels_every_block_is_free_again(client, served: Served):
    rng = random.Random(2)
    requests = mixed_requests(24, seed=3)
    solo = client.generate(**requests[0])

    def run(request):
        leave_after = rng.randrange(1, 12)
        with client.stream(**request) as stream:
            for number, _ in enumerate(stream):
                if number >= leave_after:
                    return "left"
        return "read"

    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(run, requests))
    assert "left" in outcomes
    num_idle = len(served.events("engine_idle"))
    again = client.generate(**requests[0])
    assert again.token_ids == solo.token_ids
    # A step may still be in flight when the reply is there.
    served.wait_event("engine_idle", count=num_idle + 1)
    idle = served.events("engine_idle")[-1]
    assert idle["free_blocks"] + idle["kept_blocks"] == idle["num_blocks"]


def test_the_master_has_no_torch(served: Served):
    maps = Path(f"/proc/{served.process.pid}/maps").read_text()
    assert "grpc" in maps
    assert "libtorch" not in maps
