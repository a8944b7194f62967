"""The official client against the door, over a socket."""

import base64
from collections.abc import AsyncIterator

import openai
import pytest

from lanehost.errors import DoesNotFit, InvalidRequest, NotBuilt, Overloaded, Starting
from lanehost.job import Failed, ImagePart, TextPart, Tokens
from tests.support.fake_door import FakeDoor
from tests.support.http_served import serve_http
from tests.support.image_files import png

USER = [{"role": "user", "content": "hi"}]
MODEL = "fake-model"


async def _client(door: FakeDoor) -> AsyncIterator[openai.AsyncOpenAI]:
    async with serve_http(door) as url:
        options = {"base_url": f"{url}/v1", "api_key": "none", "max_retries": 0, "timeout": 20}
        async with openai.AsyncOpenAI(**options) as client:
            yield client


@pytest.fixture
def door() -> FakeDoor:
    return FakeDoor()


@pytest.fixture
async def client(door: FakeDoor) -> AsyncIterator[openai.AsyncOpenAI]:
    async for one in _client(door):
        yield one


async def test_a_chat(client: openai.AsyncOpenAI) -> None:
    reply = await client.chat.completions.create(model=MODEL, messages=USER)
    assert reply.choices[0].message.content == "Hello é"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.prompt_tokens_details.cached_tokens == 3


async def test_a_chat_with_every_field_that_is_understood(client, door) -> None:
    await client.chat.completions.create(
        model=MODEL,
        messages=USER,
        max_completion_tokens=5,
        temperature=0.5,
        top_p=0.9,
        seed=3,
        stop=["x"],
        n=1,
        presence_penalty=0,
        user="me",
        metadata={"a": "b"},
        extra_body={"top_k": 4, "min_p": 0.1, "ignore_eos": True, "stop_token_ids": [9]},
    )
    assert door.requests[0].sampling.top_k == 4


async def test_a_chat_with_an_image(client, door) -> None:
    picture = png()
    url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    content = [
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": content}]
    )
    (message,) = door.requests[0].prompt.messages
    assert message.content == (TextPart("what?"), ImagePart(picture))


async def test_an_image_that_would_be_fetched_is_refused(client) -> None:
    content = [{"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}]
    with pytest.raises(openai.BadRequestError, match="nothing is fetched") as caught:
        await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": content}]
        )
    assert caught.value.param == "messages[0].content[0].image_url.url"


async def test_a_streamed_chat_with_usage(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=USER, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "Hello é"
    assert chunks[-1].usage.total_tokens == 8


async def test_the_streaming_helper(client: openai.AsyncOpenAI) -> None:
    async with client.chat.completions.stream(model=MODEL, messages=USER) as stream:
        reply = await stream.get_final_completion()
    assert reply.choices[0].message.content == "Hello é"


@pytest.mark.parametrize("prompt", ["hi", [1, 2, 3]])
async def test_a_completion(client: openai.AsyncOpenAI, prompt) -> None:
    reply = await client.completions.create(model=MODEL, prompt=prompt)
    assert reply.choices[0].text == "Hello é"


async def test_a_streamed_completion(client: openai.AsyncOpenAI) -> None:
    stream = await client.completions.create(model=MODEL, prompt="hi", stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == "Hello é"


async def test_models(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL]
    assert (await client.models.retrieve(MODEL)).id == MODEL


@pytest.mark.parametrize(
    ("refusal", "raised"),
    [
        (InvalidRequest("sampling.temperature", "is 200"), openai.BadRequestError),
        (NotBuilt("x", "y"), openai.BadRequestError),
        (DoesNotFit("x", have=9, limit=8), openai.BadRequestError),
        (Overloaded("x", retry_after_s=1), openai.RateLimitError),
        (Starting("x"), openai.InternalServerError),
    ],
)
async def test_errors_are_the_right_exceptions(client, door, refusal, raised) -> None:
    door.refusal = refusal
    with pytest.raises(raised) as caught:
        await client.chat.completions.create(model=MODEL, messages=USER)
    assert caught.value.body["code"]


async def test_the_wrong_field_is_the_param(client, door) -> None:
    door.refusal = InvalidRequest("sampling.temperature", "is 200")
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model=MODEL, messages=USER)
    assert caught.value.param == "temperature"


async def test_another_model_is_not_found(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.create(model="other", messages=USER)


async def test_an_error_in_mid_stream_is_raised(client, door) -> None:
    door.events = (Tokens(token_ids=(1,), text="a"), Failed(error=Starting("x")))
    stream = await client.chat.completions.create(model=MODEL, messages=USER, stream=True)
    with pytest.raises(openai.APIError, match="x"):
        [chunk async for chunk in stream]
