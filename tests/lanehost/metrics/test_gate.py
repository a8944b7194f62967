import asyncio
from collections import Counter

import pytest

from lanehost.errors import DoesNotFit, Overloaded, Starting
from lanehost.job import Request, TextPrompt
from lanehost.metrics.gate import CountingGate
from tests.support.fake_door import CARD, FakeDoor

REQUEST = Request(prompt=TextPrompt("hello"))


def opened(door):
    refused = Counter()
    gate = CountingGate(refused)
    gate.open(door)
    return gate, refused


async def test_a_request_that_is_taken_is_handed_on_and_not_counted():
    door = FakeDoor()
    gate, refused = opened(door)
    stream = await gate.submit(REQUEST)
    assert door.requests == [REQUEST]
    assert stream is door.streams[0]
    assert not refused


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (Overloaded("full", retry_after_s=1), "Overloaded"),
        (DoesNotFit("long", have=2, limit=1), "DoesNotFit"),
        (asyncio.CancelledError(), "Cancelled"),
        (ZeroDivisionError("a bug"), "InternalFault"),
    ],
)
async def test_a_refusal_is_counted_once_and_goes_on_to_the_client(error, name):
    gate, refused = opened(FakeDoor(refusal=error))
    with pytest.raises(type(error)) as raised:
        await gate.submit(REQUEST)
    assert raised.value is error
    assert refused == {name: 1}


async def test_every_call_of_the_door_is_handed_on_and_a_refusal_of_it_counted_once():
    gate, refused = opened(FakeDoor())
    assert gate.model_card(None) == CARD
    assert await gate.tokenize(TextPrompt("ab"), key=None) == [97, 98]
    assert await gate.detokenize((97,), keep_special=False, key=None) == "a"
    assert not refused
    shut = CountingGate(refused)
    with pytest.raises(Starting):
        shut.model_card(None)
    with pytest.raises(Starting):
        await shut.tokenize(TextPrompt("ab"), key=None)
    with pytest.raises(Starting):
        await shut.detokenize((97,), keep_special=False, key=None)
    assert refused == {"Starting": 3}


async def test_those_who_come_while_the_model_loads_are_counted_too():
    refused = Counter()
    with pytest.raises(Starting):
        await CountingGate(refused).submit(REQUEST)
    assert refused == {"Starting": 1}
