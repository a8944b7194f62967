import asyncio
import logging
import socket

import pytest
from structlog.testing import capture_logs

from lanehost.http.library_log import library_log
from tests.support.fake_door import FakeDoor
from tests.support.http_served import serve_http

UVICORN = logging.getLogger("uvicorn.error")
ASYNCIO = logging.getLogger("asyncio")


def failed(logger, error):
    logger.error("it holds %s", "a secret", exc_info=error)


def test_a_line_becomes_an_event_without_its_words():
    with capture_logs() as logs, library_log():
        failed(UVICORN, ValueError("a secret"))

    (entry,) = logs
    assert (entry["event"], entry["log_level"]) == ("http_library", "error")
    assert entry["error"] == "ValueError"
    assert entry["place"].startswith("uvicorn.error:test_library_log:")
    assert "secret" not in str(entry)


def test_an_error_that_nobody_else_has_seen_leaves_its_trace():
    with capture_logs() as logs, library_log():
        failed(ASYNCIO, ValueError("a secret"))

    assert [entry["event"] for entry in logs] == ["http_library", "internal_fault"]
    assert "ValueError" in logs[1]["trace"]
    assert "secret" not in str(logs)


def test_what_was_cut_off_and_what_is_no_warning_is_not_logged():
    with capture_logs() as logs, library_log():
        failed(UVICORN, asyncio.CancelledError())
        UVICORN.info("Started server process")

    assert logs == []


def test_the_loggers_are_left_as_they_were():
    before = (list(logging.getLogger("uvicorn").handlers), list(ASYNCIO.handlers))
    with library_log():
        assert (logging.getLogger("uvicorn").handlers, ASYNCIO.handlers) != before
    assert (logging.getLogger("uvicorn").handlers, ASYNCIO.handlers) == before


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01 no HTTP\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n"]
)
async def test_what_is_no_http_gets_400_and_one_event(sent):
    with capture_logs() as logs:
        async with serve_http(FakeDoor()) as url:
            with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as client:
                client.sendall(sent)
                client.settimeout(5)
                answer = await asyncio.to_thread(client.recv, 4096)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [("http_library", "warning")]
