"""Drafts on the real model, in the products that are served: the replies that there are without.

Drafts in float32: `test_real_model.py`, whose servers draft, and `test_exact_replies.py`.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from lanehost import Client
from tests.support.served import serving

pytestmark = [pytest.mark.model, pytest.mark.ranks, pytest.mark.timeout(300)]
# Texts that repeat: what prompt look-up is good at, and where its guesses go wrong half-way.
PROMPTS = [
    "one two three four five one two three four five one two three",
    "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):\n",
    "The cat sat on the mat. The dog sat on the log. The cat sat on the",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,",
]


def requests():
    return [
        {
            "prompt": prompt,
            "max_tokens": 48,
            "temperature": temperature,
            "seed": 7,
            "ignore_eos": True,
        }
        for prompt in PROMPTS
        for temperature in (0.0, 0.7)
    ]


def run_all(served, *, at_once):
    with Client(served.grpc_address) as client, ThreadPoolExecutor(at_once) as pool:
        return [
            reply.token_ids
            for reply in pool.map(lambda request: client.generate(**request), requests())
        ]


@pytest.mark.parametrize("tp", ["1", "2"])
def test_drafted_replies_equal_plain_ones_greedy_and_seeded(tmp_path, tp):
    with serving(tmp_path, "--tp", tp, "--max-drafts", "0") as served:
        plain = run_all(served, at_once=8)
    with serving(tmp_path, "--tp", tp) as served:
        drafted = run_all(served, at_once=1)
        together = run_all(served, at_once=8)
    assert drafted == plain
    assert together == plain
    print(f"drafts at tp {tp}: {sum(map(len, drafted))} tokens equal, alone and eight at once")
