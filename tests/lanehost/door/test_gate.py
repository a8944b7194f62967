import pytest

from lanehost.admission.line import Line
from lanehost.door.door import AdmissionDoor
from lanehost.door.gate import Gate
from lanehost.engine.inbox import Inbox
from lanehost.errors import Draining, Starting
from lanehost.job import Accepted, Request, TextPrompt, TokenPrompt
from lanehost.settings import LineSettings
from tests.support.cards import make_card
from tests.support.fake_text import make_text


def make_door():
    bounds = LineSettings()
    return AdmissionDoor(
        card=make_card(),
        text=make_text(),
        line=Line(bounds),
        inbox=Inbox(),
        settings=bounds,
        clock=lambda: 0.0,
    )


async def test_before_the_model_is_there_every_call_says_still_loading():
    gate = Gate()
    assert not gate.is_serving()
    with pytest.raises(Starting, match="still loading"):
        await gate.submit(Request(prompt=TokenPrompt((1,))))
    with pytest.raises(Starting):
        await gate.tokenize(TextPrompt("a"))
    with pytest.raises(Starting):
        await gate.detokenize((1,), keep_special=False)
    with pytest.raises(Starting):
        gate.model_card()


async def test_an_open_gate_hands_everything_on():
    gate, door = Gate(), make_door()
    gate.open(door)
    assert gate.is_serving()
    stream = await gate.submit(Request(prompt=TokenPrompt((1,))))
    assert isinstance(await anext(aiter(stream)), Accepted)
    assert await gate.tokenize(TextPrompt("a")) == [97]
    assert await gate.detokenize((97,), keep_special=False) == "a"
    assert gate.model_card() is door.model_card()


async def test_a_closed_door_behind_the_gate_does_not_serve():
    gate, door = Gate(), make_door()
    gate.open(door)
    door.close(Draining("over"))
    assert not gate.is_serving()
