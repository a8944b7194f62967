import pytest

from lanehost.admission.line import Line
from lanehost.door.door import AdmissionDoor
from lanehost.door.gate import Gate
from lanehost.door.turnstile import Turnstile
from lanehost.engine.desk import Desk
from lanehost.engine.inbox import Inbox
from lanehost.errors import Draining, ImageRefused, Starting, Unauthenticated
from lanehost.job import Accepted, Request, TextPrompt, TokenPrompt
from lanehost.keys import KeyRing, Scope, digest_of
from lanehost.settings import LineSettings
from tests.support.cards import make_card
from tests.support.fake_text import make_text


def make_door(keys=None):
    bounds = LineSettings()
    return AdmissionDoor(
        card=make_card(),
        text=make_text(),
        desk=Desk(line=Line(bounds, {} if keys is None else keys.weights), inbox=Inbox()),
        turnstile=Turnstile(keys, bounds),
        clock=lambda: 0.0,
    )


async def test_before_the_model_is_there_every_call_says_still_loading():
    gate = Gate()
    assert not gate.is_serving()
    with pytest.raises(Starting, match="still loading"):
        await gate.submit(Request(prompt=TokenPrompt((1,))))
    with pytest.raises(Starting):
        await gate.tokenize(TextPrompt("a"), key=None)
    with pytest.raises(Starting):
        await gate.detokenize((1,), keep_special=False, key=None)
    with pytest.raises(Starting):
        await gate.upload_image(b"x", key=None)
    with pytest.raises(Starting):
        gate.model_card(None)


async def test_an_open_gate_hands_everything_on():
    gate, door = Gate(), make_door()
    gate.open(door)
    assert gate.is_serving()
    stream = await gate.submit(Request(prompt=TokenPrompt((1,))))
    assert isinstance(await anext(aiter(stream)), Accepted)
    assert await gate.tokenize(TextPrompt("a"), key=None) == [97]
    assert await gate.detokenize((97,), keep_special=False, key=None) == "a"
    assert gate.model_card(None) is door.model_card(None)
    with pytest.raises(ImageRefused, match="takes no images"):
        await gate.upload_image(b"x", key=None)


async def test_the_key_of_every_call_is_handed_on():
    ring = KeyRing(scopes=(Scope(name="a", key_digests=(digest_of("key-a"),)),))
    gate = Gate()
    gate.open(make_door(ring))
    assert await gate.tokenize(TextPrompt("a"), key="key-a") == [97]
    assert await gate.detokenize((97,), keep_special=False, key="key-a") == "a"
    assert gate.model_card("key-a").name == "fake"
    with pytest.raises(Unauthenticated):
        await gate.tokenize(TextPrompt("a"), key=None)
    with pytest.raises(Unauthenticated):
        await gate.detokenize((97,), keep_special=False, key=None)
    with pytest.raises(Unauthenticated):
        gate.model_card(None)


async def test_a_closed_door_behind_the_gate_does_not_serve():
    gate, door = Gate(), make_door()
    gate.open(door)
    door.close(Draining("over"))
    assert not gate.is_serving()


async def test_a_gate_whose_end_is_announced_says_not_serving_and_still_hands_on():
    gate = Gate()
    gate.open(make_door())
    assert not gate.is_ending
    gate.announce_end()
    gate.resume()
    assert (gate.is_serving(), gate.is_ending) == (False, True)
    assert isinstance(
        await anext(aiter(await gate.submit(Request(prompt=TokenPrompt((1,)))))), Accepted
    )
