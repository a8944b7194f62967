"""How a key comes in over HTTP; what it opens is the door's to say."""

import openai
import pytest

from lanehost.job import Priority
from lanehost.keys import KeyRing, Scope, digest_of
from tests.support.door_rig import DoorRig
from tests.support.fake_door import FakeDoor
from tests.support.http_served import http_client, serve_http

KEY = "key-of-team-a"
GOOD = [("Authorization", f"Bearer {KEY}")]
CHAT = {"model": "fake-model", "messages": [{"role": "user", "content": "hi"}]}
TEXT = {"model": "fake-model", "prompt": "hi"}
CALLS = [
    ("POST", "/v1/chat/completions", CHAT),
    ("POST", "/v1/chat/completions", {**CHAT, "stream": True}),
    ("POST", "/v1/completions", TEXT),
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/fake-model", None),
    ("GET", "/v1/models/other", None),
]
WRONG = [
    [],
    [("Authorization", "Bearer other")],
    [("Authorization", KEY)],
    [("Authorization", f"Basic {KEY}")],
    [("Authorization", "Bearer " + "k" * 513)],
    [("Authorization", "Bearer \xff")],
    [*GOOD, *GOOD],
    [("X-Api-Key", KEY)],
]


@pytest.mark.parametrize(("method", "path", "body"), CALLS)
async def test_every_path_wants_the_key(method, path, body) -> None:
    door = FakeDoor(key=KEY)
    async with http_client(door) as client:
        for headers in WRONG:
            raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
            answer = await client.request(method, path, json=body, headers=raw)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.json()["error"]["code"] == "invalid_api_key"
        assert door.requests == []
        right = await client.request(method, path, json=body, headers=GOOD)
    assert right.status_code == (404 if path.endswith("other") else 200)


async def test_all_wrong_ways_are_answered_in_the_same_words() -> None:
    ring = KeyRing(scopes=(Scope(name="a", key_digests=(digest_of(KEY),)),))
    async with http_client(DoorRig(keys=ring).door) as client:
        said = {
            (await client.get("/v1/models", headers=[*map(_raw, headers)])).text
            for headers in WRONG
        }
    assert len(said) == 1
    assert KEY not in said.pop()


def _raw(header: tuple[str, str]) -> tuple[bytes, bytes]:
    return header[0].encode(), header[1].encode("latin-1")


async def test_a_stranger_s_body_is_not_read() -> None:
    door = FakeDoor(key=KEY)
    async with http_client(door) as client:
        answers = [
            await client.post("/v1/completions", content=content)
            for content in (b"{no json", b"x" * (7 << 20))
        ]
    assert [answer.status_code for answer in answers] == [401, 401]
    assert [answer.headers["connection"] for answer in answers] == ["close", "close"]


async def test_health_and_unknown_paths_are_open() -> None:
    async with http_client(FakeDoor(key=KEY)) as client:
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/nowhere")).status_code == 404


async def test_without_keys_the_one_that_the_official_client_always_sends_is_taken() -> None:
    door = FakeDoor()
    async with (
        serve_http(door) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client,
    ):
        await client.completions.create(model="fake-model", prompt="hi")
    assert door.requests[0].key == KEY
    assert KEY not in repr(door.requests)


async def test_the_official_client_is_told_that_its_key_is_wrong() -> None:
    async with serve_http(FakeDoor(key=KEY)) as url:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="other") as client:
            with pytest.raises(openai.AuthenticationError) as caught:
                await client.completions.create(model="fake-model", prompt="hi")
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
            reply = await client.completions.create(model="fake-model", prompt="hi")
    assert caught.value.code == "invalid_api_key"
    assert reply.choices[0].text == "Hello é"


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)]
)
@pytest.mark.parametrize("priority", Priority)
async def test_a_priority_reaches_the_door(path, body, priority) -> None:
    door = FakeDoor()
    async with http_client(door) as client:
        answer = await client.post(path, json={**body, "priority": priority.value})
        refused = await client.post(path, json={**body, "priority": "urgent"})
    assert (answer.status_code, door.requests[0].priority) == (200, priority)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "priority")
