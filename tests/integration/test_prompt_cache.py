"""The prompt cache on the real model: the same replies, and most of the work not done."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from lanehost import Client
from tests.support.served import serving

pytestmark = [pytest.mark.model, pytest.mark.ranks, pytest.mark.timeout(300)]
SYSTEM_TOKENS = 400


def requests():
    """Twelve prompts that share a system prompt; every second one draws with a seed."""
    rng = random.Random(4)
    system = [rng.randrange(17, 40000) for _ in range(SYSTEM_TOKENS)]
    return [
        {
            "token_ids": [*system, *(rng.randrange(17, 40000) for _ in range(rng.randint(1, 20)))],
            "max_tokens": 12,
            "temperature": number % 2 * 0.8,
            "seed": number,
            "ignore_eos": True,
        }
        for number in range(12)
    ]


def all_at_once(served):
    with Client(served.grpc_address) as client, ThreadPoolExecutor(12) as pool:
        return list(pool.map(lambda request: client.generate(**request), requests()))


@pytest.mark.parametrize("tp", ["1", "2"])
def test_cached_replies_equal_cold_ones_and_the_shared_prefix_is_computed_once(tmp_path, tp):
    with serving(tmp_path, "--tp", tp, "--prompt-cache", "off") as served:
        cold = all_at_once(served)
    with serving(tmp_path, "--tp", tp) as served:
        shared = all_at_once(served)
        again = all_at_once(served)
    assert {reply.usage.cached_tokens for reply in cold} == {0}
    assert sorted(reply.usage.cached_tokens for reply in shared) == [0] + [SYSTEM_TOKENS] * 11
    assert all(reply.usage.cached_tokens >= SYSTEM_TOKENS for reply in again)
    assert [reply.token_ids for reply in shared] == [reply.token_ids for reply in cold]
    assert [reply.token_ids for reply in again] == [reply.token_ids for reply in cold]
    computed = [
        sum(reply.usage.prompt_tokens - reply.usage.cached_tokens for reply in replies)
        for replies in (cold, shared)
    ]
    print(f"prompt tokens computed: {computed[0]} cold, {computed[1]} with the cache")
    assert computed[1] == computed[0] - 11 * SYSTEM_TOKENS
