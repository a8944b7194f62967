"""A Hugging Face folder served end to end: tiny random weights, a tokenizer, a strict template."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from lanehost import Client, ClientError
from tests.support.served import serving
from tests.support.served_models import write_served_folder

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(120)]
STRICT_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}"
    "{{ raise_exception('a system message must come first') }}{% endif %}"
    "{% for message in messages %}{{ message['content'] }} {% endfor %}"
)
REQUEST = {"prompt": "the cat sat on the mat", "max_tokens": 40, "ignore_eos": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    write_served_folder(path, template=STRICT_TEMPLATE)
    return path


def test_a_folder_is_served_alike_on_one_rank_and_on_two(folder, tmp_path):
    replies = []
    for tp in ("1", "2"):
        with (
            serving(tmp_path, "--model", str(folder), "--tp", tp, "--dtype", "float32") as served,
            Client(served.grpc_address) as client,
        ):
            assert client.model().vocab_size == 400
            replies.append(client.generate(**REQUEST).token_ids)
    assert len(replies[0]) == 40
    assert replies[0] == replies[1]


def test_a_chat_that_the_template_refuses_gets_its_words_and_harms_no_neighbour(folder, tmp_path):
    chat = [{"role": "user", "content": "hello"}]
    with (
        serving(tmp_path, "--model", str(folder)) as served,
        Client(served.grpc_address) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        solo = client.generate(**REQUEST).token_ids
        neighbours = [pool.submit(client.generate, **REQUEST) for _ in range(4)]
        with pytest.raises(ClientError, match="a system message must come first"):
            client.generate(messages=chat)
        assert [reply.result().token_ids for reply in neighbours] == [solo] * 4
        strict = [{"role": "system", "content": "be brief"}, *chat]
        assert client.generate(messages=strict, max_tokens=4).usage.prompt_tokens > 0
