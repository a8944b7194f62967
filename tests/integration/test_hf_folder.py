"""A Hugging Face folder served end to end: tiny random weights, a tokenizer, a strict template."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers

from lanehost import Client, ClientError
from tests.support.served import serving
from tests.support.text_models import train_byte_level

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
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=400,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=3,
        max_position_embeddings=256,
        eos_token_id=2,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    (path / "tokenizer.json").write_text(train_byte_level().to_str())
    special = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": STRICT_TEMPLATE}
    (path / "tokenizer_config.json").write_text(json.dumps(settings | special))
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
