import pytest

from lanehost.door.events import reply_events
from lanehost.errors import Overloaded
from lanehost.job import Accepted, Failed, Prefilled, Request, TextPrompt
from tests.support.fake_door import FINISHED, REPLY, SEED, FakeStream

ACCEPTED = Accepted(job_id="j", seed=SEED, prompt_tokens=5)


def _stream(*events) -> FakeStream:
    return FakeStream("j", Request(prompt=TextPrompt("x")), events)


async def test_clients_are_told_all_but_the_prefill() -> None:
    stream = _stream(Prefilled(cached_tokens=0), *REPLY, FINISHED)
    assert [event async for event in reply_events(stream)] == [ACCEPTED, *REPLY, FINISHED]


async def test_a_job_that_failed_raises_its_error() -> None:
    error = Overloaded("x", retry_after_s=1)
    with pytest.raises(Overloaded) as caught:
        [event async for event in reply_events(_stream(Failed(error=error)))]
    assert caught.value is error


class _Silent(FakeStream):
    async def __aiter__(self):
        yield ACCEPTED


async def test_a_job_without_a_last_event_is_a_broken_law() -> None:
    with pytest.raises(AssertionError, match="without a last event"):
        [event async for event in reply_events(_Silent("j", Request(prompt=TextPrompt("")), ()))]
