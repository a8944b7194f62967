"""Who asks, at the door: the key says it, and nothing else does."""

import pytest

from lanehost.errors import Draining, InvalidRequest, Overloaded, Unauthenticated
from lanehost.job import DiskUse, Priority, Request, StopParams, TextPrompt, TokenPrompt
from lanehost.keys import KeyRing, Scope, digest_of
from lanehost.settings import ImageSettings
from tests.support import image_files as files
from tests.support.cards import make_card
from tests.support.door_rig import DoorRig

RING = KeyRing(
    scopes=(
        Scope(name="team-a", key_digests=(digest_of("key-a"), digest_of("key-a2"))),
        Scope(name="team-b", key_digests=(digest_of("key-b"),)),
    )
)
WRONG = [None, "", "key-c", "team-a"]
CALLS = {
    "submit": lambda door, key: door.submit(request(key=key)),
    "tokenize": lambda door, key: door.tokenize(TextPrompt("ab"), key=key),
    "detokenize": lambda door, key: door.detokenize((97,), keep_special=False, key=key),
    "upload_image": lambda door, key: door.upload_image(files.png(), key=key),
    "model_card": lambda door, key: as_call(door.model_card, key),
}


async def as_call(method, key):
    return method(key)


def request(**values):
    return Request(prompt=TokenPrompt((1, 2, 3)), **values)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("key", WRONG)
async def test_without_a_known_key_every_call_is_refused(call, key):
    rig = DoorRig(keys=RING, images=ImageSettings())
    with pytest.raises(Unauthenticated):
        await call(rig.door, key)
    await call(rig.door, "key-a")


async def test_whether_requests_are_run_is_told_to_anybody():
    assert DoorRig(keys=RING).door.is_serving()


@pytest.mark.parametrize(
    ("key", "scope"), [("key-a", "team-a"), ("key-a2", "team-a"), ("key-b", "team-b")]
)
async def test_a_job_is_of_the_scope_that_its_key_opens(key, scope):
    rig = DoorRig(keys=RING)
    await rig.door.submit(request(key=key, label="team-z"))
    (ticket,) = await rig.arrived()
    assert ticket.job.scope == scope


async def test_without_a_ring_a_key_is_not_looked_at():
    rig = DoorRig()
    for key in (None, "any"):
        await rig.door.submit(request(key=key))
    assert [ticket.job.scope for ticket in await rig.arrived()] == ["", ""]


@pytest.mark.parametrize(
    "wrong", [{"label": "x" * 300}, {"stop": StopParams(strings=("",))}, {"timeout_s": 0.0}]
)
async def test_a_stranger_is_told_nothing_of_the_request(wrong):
    with pytest.raises(Unauthenticated):
        await DoorRig(keys=RING).door.submit(request(**wrong))


async def test_a_stranger_takes_no_place_and_is_not_told_of_a_full_line_or_an_ending_server():
    rig = DoorRig(keys=RING, max_waiting=2, max_streams=2)
    for _ in range(3):
        with pytest.raises(Unauthenticated):
            await rig.door.submit(request())
    for key in ("key-a", "key-b"):
        await rig.door.submit(request(key=key))
    with pytest.raises(Unauthenticated):
        await rig.door.submit(request())
    with pytest.raises(Overloaded):
        await rig.door.submit(request(key="key-b"))
    rig.door.close(Draining("over"))
    with pytest.raises(Unauthenticated):
        await rig.door.submit(request())


async def test_a_scope_that_floods_the_door_keeps_no_other_out():
    rig = DoorRig(keys=RING, max_waiting=8, max_streams=100)
    for _ in range(6):
        await rig.door.submit(request(key="key-a"))
    with pytest.raises(Overloaded, match=r"for you alone, limit 6 .*--max-waiting"):
        await rig.door.submit(request(key="key-a"))
    for _ in range(2):
        await rig.door.submit(request(key="key-b"))


async def test_every_place_and_stream_is_given_back_to_its_scope():
    rig = DoorRig(keys=RING, max_waiting=2, max_streams=2)
    for key in ("key-a", "key-b", "key-a"):
        with pytest.raises(InvalidRequest):
            await rig.door.submit(request(key=key, max_tokens=-1))
        assert await rig.door.tokenize(TextPrompt("a"), key=key) == [97]
        async with await rig.door.submit(request(key=key)) as stream:
            pass
        assert rig.line.leave(stream.job_id) is not None
    assert repr(rig.door) == "<AdmissionDoor open=True streams=0>"
    assert (repr(rig.line), rig.line.num_tokens) == ("<Line 0 jobs, 0 promised>", 0)


async def test_the_key_is_not_in_the_job():
    rig = DoorRig(keys=RING)
    await rig.door.submit(request(key="key-a"))
    (ticket,) = await rig.arrived()
    assert "key-a" not in f"{ticket!r}{ticket.job!r}{rig.door!r}"


@pytest.mark.parametrize("priority", Priority)
async def test_a_job_is_as_urgent_as_its_request(priority):
    rig = DoorRig()
    await rig.door.submit(request(priority=priority))
    (ticket,) = await rig.arrived()
    assert ticket.job.priority is priority


@pytest.mark.parametrize("use", DiskUse)
async def test_a_job_uses_the_disk_as_its_request_says(use):
    rig = DoorRig()
    await rig.door.submit(request(disk_use=use))
    (ticket,) = await rig.arrived()
    assert ticket.job.disk_use is use


async def test_a_request_of_no_tokens_becomes_a_warm_job():
    rig = DoorRig()
    stop = StopParams(strings=("x",), ignore_eos=True)
    await rig.door.submit(request(max_tokens=0, stop=stop))
    (ticket,) = await rig.arrived()
    assert ticket.job.is_warm


async def test_without_a_prompt_cache_a_warm_request_is_refused_and_leaves_no_trace():
    rig = DoorRig(card=make_card(has_prompt_cache=False), max_waiting=1, max_streams=1)
    for _ in range(3):
        with pytest.raises(InvalidRequest, match=r"max_tokens: is 0, .* --prompt-cache is off"):
            await rig.door.submit(request(max_tokens=0))
    await rig.door.submit(request())
