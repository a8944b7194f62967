import asyncio

import httpx
import pytest
from structlog.testing import capture_logs

from lanehost.http.border import Border


class Panic(BaseException):
    """As foreign Rust code raises it."""


START = {"type": "http.response.start", "status": 200, "headers": []}


def failing(error, *, sends=()):
    async def app(scope, receive, send):
        for message in sends:
            await send(message)
        raise error

    return Border(app)


async def ask(app):
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
        return await client.get("/")


@pytest.mark.parametrize("error", [Panic("secret"), ValueError("secret"), asyncio.CancelledError()])
async def test_whatever_passes_the_application_is_answered_in_our_form_and_logged(error):
    with capture_logs() as logs:
        answer = await ask(failing(error))

    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_fault")
    assert logs[0]["record_id"] in answer.text
    assert type(error).__name__ in logs[0]["trace"]
    assert "secret" not in f"{answer.text}{logs}"


@pytest.mark.parametrize("error", [Panic(), ValueError()])
async def test_a_response_that_has_begun_is_left_broken_and_logged(error):
    with capture_logs() as logs, pytest.raises(type(error)):
        await ask(failing(error, sends=[START]))

    assert [entry["event"] for entry in logs] == ["internal_fault"]


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_cancel_is_told_to_a_client_that_has_heard_nothing(has_begun):
    sent, waits = [], asyncio.Event()

    async def app(scope, receive, send):
        if has_begun:
            await send(START)
        waits.set()
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    with capture_logs() as logs:
        task = asyncio.create_task(Border(app)({"type": "http"}, None, send))
        await waits.wait()
        task.cancel()
        await asyncio.wait([task])

    assert task.cancelled() == has_begun
    assert [message.get("status") for message in sent] == [200] if has_begun else [503, None]
    assert logs == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
async def test_an_exit_of_the_process_passes(error):
    app = failing(error())
    with pytest.raises(error):
        app({"type": "http"}, None, None).__await__().send(None)
