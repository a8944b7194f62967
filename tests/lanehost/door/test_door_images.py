"""Images at the door: what becomes of them, and what they hold."""

import asyncio

import pytest

from lanehost.errors import InvalidRequest, Overloaded, RankGroupLost, UnknownUpload
from lanehost.images.limits import ImageLimits
from lanehost.job import (
    ChatMessage,
    ChatPrompt,
    ImagePart,
    Request,
    Role,
    TextPart,
    TextPrompt,
    TokenPrompt,
    UploadedImage,
)
from lanehost.keys import KeyRing, Scope, digest_of
from lanehost.settings import ImageSettings
from tests.support import image_files as files
from tests.support.door_rig import DoorRig

RING = KeyRing(
    scopes=tuple(
        Scope(name=f"team-{name}", key_digests=(digest_of(f"key-{name}"),)) for name in "ab"
    )
)
IMAGES = ImageSettings(limits=ImageLimits(max_images=2))
PIXELS = 24


def request(*parts, key=None, **values):
    content = tuple(TextPart(part) if isinstance(part, str) else part for part in parts)
    chat = ChatPrompt((ChatMessage(role=Role.USER, content=content),))
    return Request(prompt=chat, key=key, **values)


async def test_a_job_has_its_images_at_their_blocks():
    rig = DoorRig(images=IMAGES)
    await rig.door.submit(request("a", ImagePart(files.png())))
    (ticket,) = await rig.arrived()
    (image,) = ticket.job.images
    assert ticket.job.prompt_ids[image.start : image.stop] == (ord("|"),) * 3
    assert (image.image.width, image.image.height) == (4, 2)
    assert ticket.job.identity_ids != ticket.job.prompt_ids


async def test_pixels_are_counted_until_the_stream_is_closed():
    rig = DoorRig(images=IMAGES)
    stream = await rig.door.submit(request(ImagePart(files.png()), ImagePart(files.jpeg())))
    assert rig.images.num_held_bytes == 2 * PIXELS
    async with stream:
        pass
    assert rig.images.num_held_bytes == 0


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ([ImagePart(b"no picture")], InvalidRequest),
        ([ImagePart(files.png())] * 3, InvalidRequest),
        ([UploadedImage("unknown")], UnknownUpload),
    ],
)
async def test_a_refused_request_holds_nothing_and_leaves_no_trace(parts, error):
    rig = DoorRig(images=IMAGES, max_waiting=1, max_streams=1)
    for _ in range(3):
        with pytest.raises(error):
            await rig.door.submit(request(*parts))
    assert rig.images.num_held_bytes == 0
    await rig.door.submit(request("a"))


async def test_a_client_that_leaves_while_its_images_are_prepared_holds_nothing():
    rig = DoorRig(images=IMAGES, max_waiting=1, max_streams=1)
    submitting = asyncio.create_task(rig.door.submit(request(ImagePart(files.png(200, 200)))))
    await asyncio.sleep(0)
    assert rig.images.num_held_bytes > PIXELS
    submitting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await submitting
    assert rig.images.num_held_bytes == 0
    await rig.door.submit(request("a"))


async def test_a_request_that_the_line_has_no_place_for_holds_nothing():
    rig = DoorRig(images=IMAGES, max_waiting_tokens=20)
    await rig.door.submit(request("a" * 10))
    with pytest.raises(Overloaded):
        await rig.door.submit(request(ImagePart(files.png())))
    assert rig.images.num_held_bytes == 0


async def test_an_upload_is_good_for_any_request_of_its_scope():
    rig = DoorRig(images=IMAGES, keys=RING)
    upload = await rig.door.upload_image(files.png(), key="key-a")
    for _ in range(2):
        await rig.door.submit(request(UploadedImage(upload.upload_id), key="key-a"))
    first, second = await rig.arrived()
    assert first.job.images == second.job.images
    with pytest.raises(UnknownUpload):
        await rig.door.submit(request(UploadedImage(upload.upload_id), key="key-b"))


async def test_a_closed_door_takes_no_upload():
    rig = DoorRig(images=IMAGES)
    rig.door.close(RankGroupLost("gone", epoch=1, rank=0))
    with pytest.raises(RankGroupLost):
        await rig.door.upload_image(files.png(), key=None)


@pytest.mark.parametrize("prompt", [TokenPrompt((1, ord("|"), 2)), TextPrompt("a|b")])
async def test_ids_that_stand_for_an_image_are_refused_where_there_is_none(prompt):
    rig = DoorRig(images=IMAGES)
    with pytest.raises(InvalidRequest, match="id 124 at position 1, which stands for an image"):
        await rig.door.submit(Request(prompt=prompt))
    await DoorRig().door.submit(Request(prompt=prompt))


async def test_tokenize_gives_the_ids_with_the_blocks():
    rig = DoorRig(images=IMAGES)
    ids = await rig.door.tokenize(request(ImagePart(files.png()), "a").prompt, key=None)
    assert bytes(ids).decode() == "<user>{|||}a"
