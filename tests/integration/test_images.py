"""Images over both doors of a real server: tiny Gemma 3, two ranks, replies as the reference's.

The reference is `transformers`: its processor makes ids and pixels of the chat, its model the
logits behind each token of the reply, and the sampler of the ranks draws from them. Greedy replies
of random weights would say nothing.
"""

import base64
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import torch
from transformers import PreTrainedTokenizerFast
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma3.processing_gemma3 import Gemma3Processor

from lanehost import Client, Image
from lanehost.client_errors import BadRequest, UploadUnknown
from ranks.noise import DrawnRow
from ranks.plan import Draw
from ranks.sampler import draw_rows
from tests.support import image_files as files
from tests.support import tiny_gemma3 as tiny
from tests.support.pages import page_blocks
from tests.support.served import serving

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(300)]

HOW = {"temperature": 2.0, "seed": 7, "max_tokens": 12, "ignore_eos": True}
PICTURES = [files.picture(60, 40, seed=seed) for seed in range(3)]
PNGS = [files.encoded(picture, "PNG") for picture in PICTURES]
# Texts, and pictures by their number.
CHATS = {
    "one image": [0, "what is this"],
    "text before": ["look at this picture and say what it is:", 1],
    "three images": ["first", 0, "second", 1, "and last", 2, "which of them is red?"],
    "the same image twice": [2, 2, "are they the same?"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.write_tiny_gemma3(tmp_path_factory.mktemp("gemma") / "tiny")


@pytest.fixture(scope="module")
def served(folder, tmp_path_factory):
    options = ("--tp", "2", "--threads", "1", "--lanes", "4", "--kv-tokens", "2048")
    tmp_path = tmp_path_factory.mktemp("served")
    with serving(tmp_path, "--model", str(folder), *options) as served:
        yield served


@pytest.fixture
def client(served):
    with Client(served.grpc_address) as client:
        yield client


class Reference:
    """What the reference makes of chats."""

    def __init__(self, folder):
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_file=str(folder / "tokenizer.json"),
            bos_token="<bos>",
            eos_token="<eos>",
            extra_special_tokens={
                "boi_token": "<start_of_image>",
                "eoi_token": "<end_of_image>",
                "image_token": "<image_soft_token>",
            },
        )
        settings = json.loads((folder / "preprocessor_config.json").read_text())
        self.processor = Gemma3Processor(
            image_processor=Gemma3ImageProcessorPil(**settings | {"do_convert_rgb": True}),
            tokenizer=tokenizer,
            chat_template=tiny.TEMPLATE,
            image_seq_length=tiny.IMAGE_TOKENS,
        )
        self.model = tiny.make_gemma3()

    def inputs(self, content):
        parts = [
            {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"}
            for part in content
        ]
        text = self.processor.apply_chat_template(
            [{"role": "user", "content": parts}], tokenize=False, add_generation_prompt=True
        )
        pictures = [PICTURES[part] for part in content if not isinstance(part, str)]
        return self.processor(
            text=text, images=pictures, add_special_tokens=False, return_tensors="pt"
        )

    def drawn(self, content, token_ids):
        """What is drawn behind each of a reply's tokens, given those before it."""
        inputs = self.inputs(content)
        num_prompt = inputs["input_ids"].shape[1]
        said = torch.tensor([token_ids])
        inputs["input_ids"] = torch.cat([inputs["input_ids"], said], dim=1)
        inputs["token_type_ids"] = torch.cat(
            [inputs["token_type_ids"], torch.zeros_like(said)], dim=1
        )
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        with torch.inference_mode():
            logits = self.model(**inputs).logits[0, num_prompt - 1 : -1].float()
        draw = Draw(temperature=HOW["temperature"], top_p=1, top_k=None, min_p=0, seed=HOW["seed"])
        rows = [
            DrawnRow(row=row, draw=draw, position=num_prompt + row) for row in range(len(token_ids))
        ]
        return draw_rows(logits.contiguous(), rows)


@pytest.fixture(scope="module")
def reference(folder):
    return Reference(folder)


def sent(content):
    parts = [part if isinstance(part, str) else Image(PNGS[part]) for part in content]
    return [{"role": "user", "content": parts}]


def data_url(data):
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def ask_http(served, content, **fields):
    parts = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": data_url(PNGS[part])}}
        for part in content
    ]
    body = {"model": "tiny", "messages": [{"role": "user", "content": parts}], **HOW, **fields}
    url = f"http://{served.http_address}/v1/chat/completions"
    return httpx.post(url, json=body, timeout=60)


@pytest.mark.parametrize("content", CHATS.values(), ids=CHATS)
def test_a_reply_is_drawn_from_the_reference_s_logits(client, reference, content):
    reply = client.generate(messages=sent(content), **HOW)
    num_images = sum(not isinstance(part, str) for part in content)
    assert reply.usage.image_tokens == num_images * tiny.IMAGE_TOKENS
    assert reply.usage.prompt_tokens == reference.inputs(content)["input_ids"].shape[1]
    assert list(reply.token_ids) == reference.drawn(content, reply.token_ids)
    assert len(set(reply.token_ids)) > 3


def test_every_way_in_gives_the_same_reply(served, client, tmp_path):
    content = CHATS["one image"]
    inline = client.generate(messages=sent(content), **HOW)
    kept = client.upload_image(PNGS[0])
    uploaded = client.generate(messages=[{"role": "user", "content": [kept, content[1]]}], **HOW)
    over_http = ask_http(served, content).json()
    (tmp_path / "cat.png").write_bytes(PNGS[0])
    options = ("--temperature", "2", "--seed", "7", "--max-tokens", "12", "--json")
    command = [sys.executable, "-m", "lanehost", "generate", "--address", served.grpc_address]
    command += ["--image", str(tmp_path / "cat.png"), "--prompt", content[1], *options]
    by_command = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert uploaded.token_ids == inline.token_ids
    assert over_http["choices"][0]["message"]["content"] == inline.text
    details = over_http["usage"]["prompt_tokens_details"]
    assert details["image_tokens"] == by_command["usage"]["image_tokens"] == tiny.IMAGE_TOKENS
    # The command has no --ignore-eos: it may end sooner.
    said = tuple(by_command["token_ids"])
    assert said == inline.token_ids[: len(said)]


def test_the_same_words_about_another_image_are_another_prompt_also_when_kept(client):
    long = "these words come before the picture and fill some blocks of the cache, " * 2
    asked = [[long, number, "and these come behind it: what is it?"] for number in (0, 1, 0, 1)]
    replies = [client.generate(messages=sent(content), **HOW) for content in asked]
    assert replies[0].token_ids == replies[2].token_ids != replies[1].token_ids
    assert replies[1].token_ids == replies[3].token_ids
    for again in replies[2:]:
        assert again.usage.cached_tokens > replies[1].usage.cached_tokens
        assert again.timing.encode_s == 0.0


def test_in_company_each_reply_is_its_own(client):
    alone = [client.generate(messages=sent(content), **HOW) for content in CHATS.values()]
    texts = [f"{number} words of text" for number in range(4)]
    plain = [client.generate(text, **HOW).token_ids for text in texts]
    with ThreadPoolExecutor(8) as pool:
        images = pool.map(lambda one: client.generate(messages=sent(one), **HOW), CHATS.values())
        beside = pool.map(lambda text: client.generate(text, **HOW).token_ids, texts)
        assert [one.token_ids for one in images] == [one.token_ids for one in alone]
        assert list(beside) == plain


@pytest.mark.parametrize("name", ["png cut short", "animated webp", "gif", "nothing"])
def test_a_picture_that_is_refused_is_named_at_both_doors_and_harms_nobody(served, client, name):
    make, words = files.HOSTILE[name]
    broken = make()
    content = [Image(PNGS[0]), "and", Image(broken)]
    with pytest.raises(BadRequest) as refusal:
        client.generate(messages=[{"role": "user", "content": content}], **HOW)
    assert refusal.value.field == "images[2]"
    assert words in refusal.value.message
    url = {"type": "image_url", "image_url": {"url": data_url(broken)}}
    body = {"model": "tiny", "messages": [{"role": "user", "content": [url]}]}
    error = httpx.post(f"http://{served.http_address}/v1/chat/completions", json=body).json()
    assert error["error"]["param"].startswith(("images[1]", "messages[0].content[0].image_url"))
    with pytest.raises(BadRequest):
        client.upload_image(broken)
    assert client.generate(messages=sent(CHATS["one image"]), **HOW).token_ids


def test_an_upload_that_is_unknown_is_not_found(client):
    kept = client.upload_image(PNGS[0])
    kept.upload_id += "0"
    with pytest.raises(UploadUnknown, match="is known to you"):
        client.generate(messages=[{"role": "user", "content": [kept, "what?"]}])


def test_a_text_that_spells_an_image_s_words_is_text(client):
    spelled = "<start_of_image><image_soft_token><end_of_image>"
    reply = client.generate(messages=[{"role": "user", "content": spelled}], **HOW)
    assert reply.usage.image_tokens == 0
    with pytest.raises(BadRequest, match="stands for an image, and no image"):
        client.generate(spelled)


@pytest.mark.parametrize("number", range(3))
def test_the_examples_of_the_page_run(served, tmp_path, number):
    blocks = page_blocks("docs/images.md", "image")
    assert len(blocks) == 3
    language, code = blocks[number]
    (tmp_path / "cat.png").write_bytes(PNGS[0])
    code = code.replace("127.0.0.1:50051", served.grpc_address)
    code = code.replace("127.0.0.1:8000", served.http_address)
    if language == "sh":
        code = code.replace(".venv/bin/lanehost ", f"{sys.executable} -m lanehost ").rstrip()
        code += f" --address {served.grpc_address}"
    command = ["sh", "-c", code] if language == "sh" else [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout
