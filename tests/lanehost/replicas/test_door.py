"""The door of the replicas over doubles: replies unchanged, one ending, keys and heads."""

import asyncio
import json
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.requests import Request

from lanehost.errors import Overloaded, Starting
from lanehost.http.errors import ReplicaLost
from lanehost.http.reading import BodyReader
from lanehost.keys import KeyRing, Scope, digest_of
from lanehost.replicas.call import Call, ReplyHead, ReplyLost
from lanehost.replicas.door import ReplicasDoor

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
WHOLE = ReplyHead(status=418, headers=(("x-a", "1"), ("x-a", "2"), ("content-type", "a/b")))
STREAM = ReplyHead(status=200, headers=(("content-type", "text/event-stream"), ("x-seed", "7")))


class FakeReplicas:
    """Answers every call with the same parts; an exception among them is raised."""

    def __init__(self, *parts, then_wait=False):
        self.parts, self.then_wait = parts, then_wait
        self.calls: list[Call] = []
        self.closed = asyncio.Event()

    async def call(self, call):
        self.calls.append(call)
        try:
            for part in self.parts:
                if isinstance(part, Exception):
                    raise part
                yield part
            if self.then_wait:
                await asyncio.Event().wait()
        finally:
            self.closed.set()


def door_app(replicas, *, keys=None, **options):
    door = ReplicasDoor(replicas, keys=keys, head_chars=512, **options)

    async def app(scope, receive, send):
        response = await door.answer(Request(scope, receive))
        await response(scope, receive, send)

    return app


@asynccontextmanager
async def client_of(replicas, **options):
    transport = httpx.ASGITransport(door_app(replicas, **options))
    async with httpx.AsyncClient(transport=transport, base_url="http://replicas") as client:
        yield client


async def ask(replicas, **options):
    async with client_of(replicas, **options) as client:
        return await client.post("/v1/chat/completions", json=CHAT)


async def test_status_headers_and_body_are_the_server_s_own():
    replicas = FakeReplicas(WHOLE, b"short and ", b"stout")
    reply = await ask(replicas)
    assert (reply.status_code, reply.content) == (418, b"short and stout")
    assert reply.headers.multi_items() == [("content-length", "15"), *WHOLE.headers]
    assert replicas.closed.is_set()


async def test_a_stream_goes_through_event_by_event():
    replicas = FakeReplicas(STREAM, b"data: a\n\n", b"data: [DONE]\n\n")
    reply = await ask(replicas)
    assert reply.content == b"data: a\n\ndata: [DONE]\n\n"
    assert reply.headers.multi_items() == list(STREAM.headers)
    assert replicas.closed.is_set()


async def test_the_call_is_the_request_with_its_key_and_query():
    replicas = FakeReplicas(WHOLE, b"")
    async with client_of(replicas) as client:
        await client.post("/v1/x?a=%20b", content=b"\x00", headers={"authorization": "Bearer k"})
        await client.get("/v1/models/a%2Fb")
    first, second = replicas.calls
    assert (first.method, first.target, first.body) == ("POST", "/v1/x?a=%20b", b"\x00")
    assert ("authorization", "Bearer k") in first.headers
    assert "host" not in dict(first.headers)
    assert (second.method, second.body) == ("GET", b"")
    assert second.target == "/v1/models/a%2Fb"


@pytest.mark.parametrize("body", [CHAT, {**CHAT, "pad": "x" * 40_000}])
async def test_prompts_that_begin_alike_have_one_key_and_others_another(body):
    replicas = FakeReplicas(WHOLE, b"")
    later = {**body, "messages": [*CHAT["messages"], {"role": "assistant", "content": "?"}]}
    other = {**body, "messages": [{"role": "user", "content": "Ho"}]}
    async with client_of(replicas) as client:
        for one in (body, later, other):
            await client.post("/v1/chat/completions", json=one)
    first, second, third = (call.key for call in replicas.calls)
    assert first == second != third


async def test_with_keys_scopes_differ_and_keys_of_one_scope_do_not():
    scopes = {"a": ("k1", "k2"), "b": ("k3",)}
    ring = KeyRing(
        scopes=tuple(
            Scope(name=name, key_digests=tuple(map(digest_of, keys)))
            for name, keys in scopes.items()
        )
    )
    found = {}
    for keys in (ring, None):
        replicas = FakeReplicas(WHOLE, b"")
        async with client_of(replicas, keys=keys) as client:
            for key in ("k1", "k2", "k3", "stranger"):
                headers = {"authorization": f"Bearer {key}"}
                await client.post("/v1/chat/completions", json=CHAT, headers=headers)
        found[keys is None] = [call.key for call in replicas.calls]
    first, same_scope, other_scope, stranger = found[False]
    assert first == same_scope
    assert len({first, other_scope, stranger}) == 3
    # Without keys the servers look at none, and all clients share what was computed.
    assert len(set(found[True])) == 1


def events_of(reply):
    return [line for line in reply.content.decode().split("\n\n") if line]


@pytest.mark.parametrize("lost", [ReplyLost(reason="x"), ReplicaLost("x")])
async def test_a_replica_lost_in_mid_stream_is_one_named_event_and_no_done(lost):
    replicas = FakeReplicas(STREAM, b"data: a\n\n", lost)
    reply = await ask(replicas)
    first, last = events_of(reply)
    error = json.loads(last.removeprefix("data: "))["error"]
    assert first == "data: a"
    assert (error["type"], error["code"]) == ("server_error", "replica_lost")
    assert replicas.closed.is_set()


@pytest.mark.parametrize("parts", [[], [WHOLE], [WHOLE, b"half"]])
@pytest.mark.parametrize("lost", [ReplyLost(reason="x"), ReplicaLost("x")])
async def test_a_replica_lost_before_anything_was_sent_is_a_503_to_be_sent_again(parts, lost):
    reply = await ask(FakeReplicas(*parts, lost))
    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "1"
    assert reply.json()["error"]["code"] == "replica_lost"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Overloaded("full", retry_after_s=2.0), 429, "overloaded"),
        (Starting("none"), 503, "starting"),
        (ValueError("a prompt"), 500, "internal_fault"),
    ],
)
async def test_what_fails_before_a_replica_answers_has_a_status_of_its_own(error, status, code):
    reply = await ask(FakeReplicas(error))
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
    assert "a prompt" not in reply.text


async def test_a_body_that_is_too_large_never_reaches_a_replica():
    replicas = FakeReplicas(WHOLE, b"")
    reply = await ask(replicas, bodies=BodyReader(max_bytes=10))
    assert (reply.status_code, replicas.calls) == (503, [])


async def test_health_is_not_waited_for_without_end():
    reply_of = FakeReplicas(then_wait=True)
    async with client_of(reply_of, health_timeout_s=0.05) as client:
        reply = await client.get("/health")
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "starting")
    assert reply_of.closed.is_set()


async def test_metrics_are_refused_by_name_as_they_are_each_server_s_own():
    replicas = FakeReplicas(WHOLE, b"")
    async with client_of(replicas) as client:
        reply = await client.get("/metrics")
    assert (reply.status_code, replicas.calls) == (404, [])
    assert "/metrics" in reply.json()["error"]["message"]


async def test_a_client_that_leaves_ends_the_call():
    replicas = FakeReplicas(STREAM, b"data: a\n\n", then_wait=True)
    sent, asked = asyncio.Event(), False

    async def receive():
        nonlocal asked
        if not asked:
            asked = True
            return {"type": "http.request", "body": b"{}", "more_body": False}
        await sent.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        if message.get("body"):
            sent.set()

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "query_string": b""}
    scope |= {"headers": [], "server": ("replicas", 80), "scheme": "http"}
    async with asyncio.timeout(10):
        await door_app(replicas)(scope, receive, send)
        await replicas.closed.wait()
