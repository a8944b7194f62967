"""Requests of no tokens on the real model: an empty reply, and a prompt that is kept."""

import httpx
import pytest

from lanehost import Client
from tests.support.served import serving

pytestmark = [pytest.mark.model, pytest.mark.ranks, pytest.mark.timeout(300)]
PROMPTS = [[*range(start, start + 100)] for start in (1000, 2000, 3000)]


def test_a_warm_request_keeps_its_prompt_and_the_next_reply_is_the_cold_one(tmp_path) -> None:
    with (
        serving(tmp_path, "--prompt-cache", "off") as served,
        Client(served.grpc_address) as client,
    ):
        cold = [client.generate(token_ids=ids, max_tokens=4).token_ids for ids in PROMPTS]
    with serving(tmp_path) as served, Client(served.grpc_address) as client:
        whole = client.generate(token_ids=PROMPTS[0], max_tokens=0, priority="background")
        with client.stream(token_ids=PROMPTS[1], max_tokens=0, stop="x") as stream:
            assert list(stream) == []
        over_http = httpx.post(
            f"http://{served.http_address}/v1/completions",
            json={"model": client.model().name, "prompt": PROMPTS[2], "max_tokens": 0},
            timeout=60,
        ).json()
        again = client.generate(token_ids=PROMPTS[0], max_tokens=0)
        warm = [client.generate(token_ids=ids, max_tokens=4) for ids in PROMPTS]
    for reply in (whole, stream.reply):
        assert (reply.text, reply.token_ids, reply.finish_reason) == ("", (), "length")
        assert (reply.usage.cached_tokens, reply.usage.completion_tokens) == (0, 0)
    assert over_http["choices"][0]["finish_reason"] == "length"
    assert (over_http["choices"][0]["text"], over_http["usage"]["completion_tokens"]) == ("", 0)
    assert again.usage.cached_tokens >= 96
    assert [reply.usage.cached_tokens for reply in warm] == [96] * 3
    assert [reply.token_ids for reply in warm] == cold
