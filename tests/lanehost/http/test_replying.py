import asyncio
import json

import pytest
from structlog.testing import capture_logs

from lanehost.errors import DeadlinePassed, InvalidRequest, Overloaded, RankGroupLost
from lanehost.job import Failed, Finished, FinishReason, Prefilled, TextPrompt, Tokens
from tests.support.fake_door import FINISHED, FakeDoor, FakeStream
from tests.support.http_served import CREATED_S, http_client

WAIT_S = 5
CHAT = {"model": "fake-model", "messages": [{"role": "user", "content": "hi"}]}
TEXT = {"model": "fake-model", "prompt": "hi"}
BODIES = [("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)]
HELD = (Prefilled(cached_tokens=0), Tokens(token_ids=(1,), text="a"))
USAGE = {
    "prompt_tokens": 5,
    "completion_tokens": 3,
    "total_tokens": 8,
    "prompt_tokens_details": {"cached_tokens": 3, "disk_cached_tokens": 0, "image_tokens": 0},
}
BOTH = pytest.mark.parametrize(("path", "body"), BODIES)


def _events(text: str) -> list[str]:
    assert text.endswith("\n\n")
    return [event.removeprefix("data: ") for event in text.removesuffix("\n\n").split("\n\n")]


def _streamed(body: dict) -> dict:
    return {**body, "stream": True}


async def test_a_chat_is_answered_whole() -> None:
    async with http_client(FakeDoor()) as client:
        reply = (await client.post("/v1/chat/completions", json=CHAT)).json()
    assert reply == {
        "id": "chatcmpl-job-1",
        "object": "chat.completion",
        "created": CREATED_S,
        "model": "fake-model",
        "system_fingerprint": "fp_abababababababab",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello é", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
    }


async def test_a_completion_is_answered_whole() -> None:
    async with http_client(FakeDoor()) as client:
        reply = (await client.post("/v1/completions", json=TEXT)).json()
    assert (reply["id"], reply["object"]) == ("cmpl-job-1", "text_completion")
    assert reply["choices"] == [
        {"index": 0, "text": "Hello é", "logprobs": None, "finish_reason": "stop"}
    ]


@pytest.mark.parametrize(
    ("reason", "word"),
    [(FinishReason.EOS, "stop"), (FinishReason.STOP, "stop"), (FinishReason.LENGTH, "length")],
)
@BOTH
async def test_finish_reasons_are_openais(path, body, reason, word) -> None:
    last = Finished(reason=reason, matched=None, usage=FINISHED.usage, timing=FINISHED.timing)
    async with http_client(FakeDoor(events=(last,))) as client:
        whole = (await client.post(path, json=body)).json()
        stream = await client.post(path, json=_streamed(body))
    assert whole["choices"][0]["finish_reason"] == word
    assert json.loads(_events(stream.text)[-2])["choices"][0]["finish_reason"] == word


async def test_a_chat_stream_has_role_then_text_then_reason_then_done() -> None:
    async with http_client(FakeDoor()) as client:
        answer = await client.post("/v1/chat/completions", json=_streamed(CHAT))
    *chunks, done = _events(answer.text)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert done == "[DONE]"
    choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
    assert [(one["delta"], one["finish_reason"]) for one in choices] == [
        ({"role": "assistant", "content": ""}, None),
        ({"content": "Hel"}, None),
        ({"content": "lo é"}, None),
        ({}, "stop"),
    ]


async def test_a_completion_stream_has_text_then_reason_then_done() -> None:
    async with http_client(FakeDoor()) as client:
        answer = await client.post("/v1/completions", json=_streamed(TEXT))
    *chunks, done = _events(answer.text)
    assert done == "[DONE]"
    choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
    assert [(one["text"], one["finish_reason"]) for one in choices] == [
        ("Hel", None),
        ("lo é", None),
        ("", "stop"),
    ]


@BOTH
async def test_usage_comes_last_and_alone_when_asked_for(path, body) -> None:
    ask = {**_streamed(body), "stream_options": {"include_usage": True}}
    async with http_client(FakeDoor()) as client:
        *chunks, usage, _ = _events((await client.post(path, json=ask)).text)
    assert (json.loads(usage)["choices"], json.loads(usage)["usage"]) == ([], USAGE)
    assert all(json.loads(chunk)["usage"] is None for chunk in chunks)


@BOTH
async def test_usage_is_not_streamed_unasked(path, body) -> None:
    async with http_client(FakeDoor()) as client:
        *chunks, _ = _events((await client.post(path, json=_streamed(body))).text)
    assert all("usage" not in json.loads(chunk) for chunk in chunks)


async def test_the_door_gets_the_request() -> None:
    door = FakeDoor()
    async with http_client(door) as client:
        await client.post("/v1/completions", json={**TEXT, "max_tokens": 3, "top_k": 5})
    (request,) = door.requests
    assert (request.prompt, request.max_tokens) == (TextPrompt("hi"), 3)
    assert request.sampling.top_k == 5


async def test_the_content_type_does_not_matter() -> None:
    async with http_client(FakeDoor()) as client:
        answer = await client.post(
            "/v1/completions", content=json.dumps(TEXT), headers={"content-type": "text/plain"}
        )
    assert answer.status_code == 200


@BOTH
async def test_another_model_is_not_here(path, body) -> None:
    door = FakeDoor()
    async with http_client(door) as client:
        answer = await client.post(path, json={**body, "model": "other"})
    assert answer.status_code == 404
    assert answer.json()["error"]["param"] == "model"
    assert door.requests == []


@pytest.mark.parametrize("stream", [False, True])
@BOTH
async def test_a_refusal_has_its_status_streamed_or_not(path, body, stream) -> None:
    async with http_client(FakeDoor(refusal=Overloaded("full", retry_after_s=2))) as client:
        answer = await client.post(path, json={**body, "stream": stream})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")


@pytest.mark.parametrize("stream", [False, True])
@BOTH
async def test_what_fails_before_the_first_token_has_its_status(path, body, stream) -> None:
    events = (Prefilled(cached_tokens=0), Failed(error=DeadlinePassed("prefill")))
    async with http_client(FakeDoor(events=events)) as client:
        answer = await client.post(path, json={**body, "stream": stream})
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "deadline_passed"


@BOTH
async def test_what_fails_in_mid_stream_is_an_event_and_no_done(path, body) -> None:
    events = (*HELD, Failed(error=RankGroupLost("rank 1 is gone", epoch=2, rank=1)))
    async with http_client(FakeDoor(events=events)) as client:
        answer = await client.post(path, json=_streamed(body))
    last = json.loads(_events(answer.text)[-1])
    assert answer.status_code == 200
    assert last["error"]["code"] == "rank_group_lost"
    assert "[DONE]" not in answer.text


class _SilentStream(FakeStream):
    """Breaks the protocol: it ends without a last event."""

    async def __aiter__(self):
        for event in self._events:
            yield event


class _SilentDoor(FakeDoor):
    async def submit(self, request):
        return _SilentStream("job-1", request, self.events)


@pytest.mark.parametrize("stream", [False, True])
@BOTH
async def test_a_job_without_a_last_event_is_our_bug_and_hangs_nobody(path, body, stream) -> None:
    async with http_client(_SilentDoor(events=HELD)) as client:
        with capture_logs() as logs:
            answer = await client.post(path, json={**body, "stream": stream})
    assert logs[0]["record_id"] in answer.text
    assert "[DONE]" not in answer.text


async def test_a_cancel_from_within_is_our_bug_and_hangs_nobody() -> None:
    async with http_client(FakeDoor(refusal=asyncio.CancelledError())) as client:
        with capture_logs() as logs:
            answer = await client.post("/v1/completions", json=TEXT)
    assert answer.status_code == 500
    assert logs[0]["record_id"] in answer.text


@pytest.mark.parametrize("events", [(), HELD], ids=["waiting", "running"])
@pytest.mark.parametrize("stream", [False, True])
@BOTH
async def test_a_client_that_leaves_ends_its_job(path, body, stream, events) -> None:
    door = FakeDoor(events=events)
    async with http_client(door) as client:
        asking = asyncio.create_task(client.post(path, json={**body, "stream": stream}))
        await asyncio.wait_for(door.submitted.wait(), WAIT_S)
        asking.cancel()
        await asyncio.wait_for(door.streams[0].ended.wait(), WAIT_S)
    assert door.streams[0].cancelled


async def test_a_job_that_finished_is_not_cancelled() -> None:
    door = FakeDoor()
    async with http_client(door) as client:
        await client.post("/v1/completions", json=TEXT)
        await client.post("/v1/completions", json=_streamed(TEXT))
    assert [stream.cancelled for stream in door.streams] == [False, False]


async def test_a_reader_that_does_not_read_stops_its_job_and_no_other() -> None:
    num_written = 0

    def endless():
        nonlocal num_written
        while True:
            num_written += 1
            yield Tokens(token_ids=(1,), text="x" * 10_000)

    door = FakeDoor(events=endless())
    async with http_client(door) as client:
        request = client.build_request("POST", "/v1/completions", json=_streamed(TEXT))
        slow = await client.send(request, stream=True)
        async with asyncio.timeout(20):
            seen = -1
            while seen != num_written:
                seen = num_written
                await asyncio.sleep(0.1)
        door.events = (FINISHED,)
        other = await asyncio.wait_for(client.post("/v1/completions", json=TEXT), WAIT_S)
        await slow.aclose()
        await asyncio.wait_for(door.streams[0].ended.wait(), WAIT_S)
    assert other.status_code == 200
    assert door.streams[0].cancelled


async def test_bodies_of_any_bytes_get_an_answer() -> None:
    hostile = [b"", b"\x00", b"\xff\xfe", b"[" * 100_000, b'{"model":NaN}', b'"\\ud800"', b"null"]
    async with http_client(FakeDoor()) as client:
        answers = [await client.post("/v1/completions", content=body) for body in hostile]
    assert [answer.status_code for answer in answers] == [400] * len(hostile)
    assert all(answer.json()["error"]["param"] == "body" for answer in answers)


@BOTH
async def test_the_seed_in_force_and_the_id_are_in_the_headers(path, body) -> None:
    async with http_client(FakeDoor()) as client:
        answers = [await client.post(path, json=one) for one in (body, _streamed(body))]
    told = [(one.headers["x-lanehost-seed"], one.headers["x-request-id"]) for one in answers]
    assert told == [("7", "job-1"), ("7", "job-2")]


class _CancellingStream(FakeStream):
    """Is cancelled from within after its first token."""

    async def __aiter__(self):
        async for event in super().__aiter__():
            yield event
            if isinstance(event, Tokens):
                raise asyncio.CancelledError


class _CancellingDoor(FakeDoor):
    async def submit(self, request):
        return _CancellingStream("job-1", request, self.events)


@BOTH
async def test_a_cancel_from_within_a_stream_is_an_event_and_no_second_start(path, body) -> None:
    async with http_client(_CancellingDoor()) as client:
        with capture_logs() as logs:
            answer = await client.post(path, json=_streamed(body))
    last = json.loads(_events(answer.text)[-1])
    assert (answer.status_code, last["error"]["code"]) == (200, "internal_fault")
    assert logs[0]["record_id"] in last["error"]["message"]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_client_that_never_reads_loses_its_place() -> None:
    def endless():
        while True:
            yield Tokens(token_ids=(1,), text="x" * 10_000)

    door = FakeDoor(events=endless())
    async with http_client(door, write_timeout_s=0.2) as client:
        request = client.build_request("POST", "/v1/completions", json=_streamed(TEXT))
        slow = await client.send(request, stream=True)
        await asyncio.wait_for(door.streams[0].ended.wait(), WAIT_S)
        assert door.streams[0].cancelled
        await slow.aclose()


@pytest.mark.parametrize(
    ("fields", "refusal", "param"),
    [
        (
            {"max_completion_tokens": 0},
            InvalidRequest("max_tokens", "is 0"),
            "max_completion_tokens",
        ),
        ({"max_tokens": 0}, InvalidRequest("max_tokens", "is 0"), "max_tokens"),
        ({"metadata": {"a": "x" * 300}}, InvalidRequest("label", "is long"), "metadata"),
        ({"safety_identifier": "x" * 300}, InvalidRequest("label", "is long"), "safety_identifier"),
        ({"user": "x" * 300}, InvalidRequest("label", "is long"), "user"),
        ({"temperature": 900}, InvalidRequest("sampling.temperature", "is 900"), "temperature"),
    ],
)
async def test_a_refusal_names_the_field_that_the_client_sent(fields, refusal, param) -> None:
    async with http_client(FakeDoor(refusal=refusal)) as client:
        answer = await client.post("/v1/chat/completions", json={**CHAT, **fields})
    error = answer.json()["error"]
    assert (error["param"], error["message"]) == (param, f"{param}: {refusal.reason}")
