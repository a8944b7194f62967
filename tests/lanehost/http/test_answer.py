import asyncio

import pytest

from lanehost.http.answer import Answer, ClientStalled

START = {"type": "http.response.start", "status": 200, "headers": []}


class _Client:
    """Reads, until it does not."""

    def __init__(self) -> None:
        self.got = []
        self.reads = True

    async def send(self, message) -> None:
        if not self.reads:
            await asyncio.Event().wait()
        self.got.append(message)


async def test_what_was_begun_is_known() -> None:
    client = _Client()
    answer = Answer(client.send)
    assert not answer.has_begun
    await answer(START)
    assert (answer.has_begun, client.got) == (True, [START])
    assert repr(answer) == "<Answer begun=True stalled=False>"


async def test_to_a_client_that_does_not_read_nothing_is_sent_any_more() -> None:
    client = _Client()
    answer = Answer(client.send, timeout_s=0.01)
    client.reads = False
    with pytest.raises(ClientStalled, match=r"read nothing for 0.01 s"):
        await answer(START)
    client.reads = True
    with pytest.raises(ClientStalled):
        await answer(START)
    assert (answer.has_begun, client.got) == (True, [])
