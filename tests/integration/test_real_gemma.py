"""Gemma 3 270M as it was released: its tokenizer, and its replies from two real ranks.

`tests/data/gemma3_ids.json` holds what llama.cpp makes of texts, `gemma3_greedy.jsonl` the greedy
replies of `transformers` in float32 to the file's very values. One prompt is longer than the
window of most layers.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lanehost import Client
from lanehost.client_errors import BadRequest
from lanehost.text.model_text import load_model_text
from tests.support.cases import near_ties_used, reference_cases
from tests.support.gemma_file import join_gemma
from tests.support.served import serving

pytestmark = [pytest.mark.model, pytest.mark.ranks, pytest.mark.timeout(300)]

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The file; one that is not joined wrong has a header that can be read."""
    path = join_gemma(tmp_path_factory.mktemp("gemma"))
    yield path
    path.unlink()


def test_a_text_has_the_ids_that_llama_cpp_gives_it(path):
    text = load_model_text(path)
    assert text.eos_token_ids == {1, 106}  # <eos> and <end_of_turn>
    tokenizer = text.tokenizer
    expected = json.loads((DATA / "gemma3_ids.json").read_text())
    assert {text: tokenizer.encode(text) for text in expected} == expected


def test_two_ranks_reply_as_the_reference_and_a_chat_is_refused_in_words(path, tmp_path):
    cases = reference_cases("gemma3_greedy.jsonl")
    options = ("--model", str(path), "--tp", "2", "--threads", "1", "--lanes", "8")
    with serving(tmp_path, *options) as served, Client(served.grpc_address) as client:

        def reply_to(case):
            wanted = len(case.greedy_ids)
            return client.generate(
                token_ids=case.prompt_ids, max_tokens=wanted, ignore_eos=True
            ).token_ids

        with ThreadPoolExecutor(len(cases)) as pool:
            replies = list(pool.map(reply_to, cases))
        for case, token_ids in zip(cases, replies, strict=True):
            near_ties_used(case, list(token_ids))
        assert client.generate("1, 2, 3, 4,", max_tokens=6).text == " 5, 6,"
        with pytest.raises(BadRequest, match="no chat template"):
            client.generate(messages=[{"role": "user", "content": "hello"}], max_tokens=1)
        reasons = {event["reason"] for event in served.events("native_not_used")}
        assert reasons == {"the kernels do not compute the family gemma3"}
