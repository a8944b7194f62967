"""Whoever wraps a protocol forwards all of it: every member, every argument, every answer.

The protocol is asked for its members, so one that is added and not forwarded is red here.
`RecordingBackend`, which needs real plans, has the same test beside the recorder.
"""

import inspect
from collections import Counter

import pytest

from lanehost.door.gate import Gate
from lanehost.door.interface import Door
from lanehost.engine.observer import EngineObserver, NoObserver, Observers
from lanehost.metrics.gate import CountingGate
from lanehost.metrics.observer import MetricsObserver
from lanehost.recorder.recorder import Recorder


def members(protocol):
    return {
        name: member
        for name, member in vars(protocol).items()
        if not name.startswith("_") and inspect.isfunction(member)
    }


class Echo:
    """Answers whatever a protocol has, and remembers what it was asked."""

    def __init__(self, protocol):
        self.protocol, self.asked = protocol, []
        self.answer = object()

    def __getattr__(self, name):
        member = members(self.protocol)[name]

        def call(*args, **kwargs):
            bound = inspect.signature(member).bind(None, *args, **kwargs)
            self.asked.append((name, list(bound.arguments.values())[1:]))
            return self.answer

        async def call_async(*args, **kwargs):
            return call(*args, **kwargs)

        return call_async if inspect.iscoroutinefunction(member) else call


def open_gate(gate, door):
    gate.open(door)
    return gate


WRAPPERS = {
    "Gate": (Door, lambda echo: open_gate(Gate(), echo)),
    "CountingGate": (Door, lambda echo: open_gate(CountingGate(Counter()), echo)),
    "Observers": (EngineObserver, Observers),
}
CASES = [(kind, name) for kind, (protocol, _) in WRAPPERS.items() for name in members(protocol)]


@pytest.mark.parametrize(("kind", "name"), CASES)
async def test_every_member_is_forwarded_with_its_arguments_and_its_answer(kind, name):
    protocol, wrap = WRAPPERS[kind]
    member, echo = members(protocol)[name], Echo(protocol)
    parameters = list(inspect.signature(member).parameters.values())[1:]
    given = {parameter.name: object() for parameter in parameters}
    by_name = {p.name: given[p.name] for p in parameters if p.kind is p.KEYWORD_ONLY}
    by_place = [given[p.name] for p in parameters if p.kind is not p.KEYWORD_ONLY]
    answer = getattr(wrap(echo), name)(*by_place, **by_name)
    answer = await answer if inspect.isawaitable(answer) else answer
    assert echo.asked == [(name, list(given.values()))]
    if inspect.signature(member).return_annotation is not None:
        assert answer is echo.answer


@pytest.mark.parametrize("observer", [NoObserver, Observers, Recorder, MetricsObserver])
def test_every_observer_is_a_whole_one(observer):
    for name, member in members(EngineObserver).items():
        mine = inspect.signature(getattr(observer, name)).parameters
        assert mine.keys() == inspect.signature(member).parameters.keys()
