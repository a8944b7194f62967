"""The images of prompts."""

import asyncio
import threading
import time
from dataclasses import replace

import pytest

from lanehost.door.prompt_images import PromptImages, image_card, known_to_ranks
from lanehost.errors import InvalidRequest, Overloaded, StartupFailed, UnknownUpload
from lanehost.images.limits import ImageLimits
from lanehost.job import (
    ChatMessage,
    ChatPrompt,
    ImagePart,
    Role,
    TextPart,
    TextPrompt,
    UploadedImage,
)
from lanehost.rank_group.facts import ImageFacts
from lanehost.settings import ImageSettings
from tests.support import image_files as files
from tests.support.fake_text import IMAGES, make_text

PIXELS = IMAGES.processor.num_bytes


def chat(*parts):
    content = tuple(TextPart(part) if isinstance(part, str) else part for part in parts)
    return ChatPrompt((ChatMessage(role=Role.USER, content=content),))


def make(*, takes_images=True, clock=None, **settings):
    text = make_text(images=IMAGES if takes_images else None)
    limits = ImageLimits(max_image_bytes=1 << 16, max_image_pixels=1 << 16, max_images=3)
    made = ImageSettings(limits=limits, **settings)
    return PromptImages(text, settings=made, clock=clock or (lambda: 0.0))


def test_a_prompt_without_images_is_judged_by_no_limit():
    images = make(takes_images=False)
    assert images.check(chat("a", "b"), "") == 0
    assert images.hold(TextPrompt("a"), "").pixel_bytes == 0


def test_a_model_without_images_refuses_with_words():
    with pytest.raises(InvalidRequest) as refusal:
        make(takes_images=False).check(chat(ImagePart(b"x")), "")
    assert str(refusal.value) == "images[1]: the model takes no images"


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([ImagePart(b"x")] * 4, "images: are 4, limit 3 (--max-images)"),
        (
            [ImagePart(b"x"), ImagePart(bytes((1 << 16) + 1))],
            "images[2]: has 65537 bytes, limit 65536 (--max-image-bytes)",
        ),
    ],
)
def test_counts_are_judged_with_the_number_the_value_and_the_limit(parts, said):
    with pytest.raises(InvalidRequest) as refusal:
        make().check(chat(*parts), "")
    assert str(refusal.value) == said


async def test_images_are_prepared_in_their_order_over_all_messages():
    images = make()
    upload = await images.upload(files.webp(), "a")
    first = ChatMessage(role=Role.USER, content=(TextPart("a"), ImagePart(files.png())))
    second = ChatMessage(
        role=Role.USER,
        content=(UploadedImage(upload.upload_id), ImagePart(files.jpeg()), TextPart("b")),
    )
    prepared = await images.prepare(ChatPrompt((first, second)), "a")
    assert [(one.width, one.height, len(one.pixels)) for one in prepared] == [(4, 2, PIXELS)] * 3
    assert prepared[0] == prepared[1] != prepared[2]


async def test_a_picture_that_is_refused_is_named_by_its_number():
    with pytest.raises(InvalidRequest) as refusal:
        await make().prepare(chat(ImagePart(files.png()), "and", ImagePart(b"GIF89a")), "")
    assert refusal.value.field == "images[2]"


async def test_an_upload_of_another_or_too_old_is_unknown_before_any_work():
    now_s = [0.0]
    images = make(clock=lambda: now_s[0], upload_lifetime_s=5.0)
    upload = await images.upload(files.png(), "a")
    asked = chat(UploadedImage(upload.upload_id))
    assert images.check(asked, "a") == 1
    with pytest.raises(UnknownUpload):
        images.check(asked, "b")
    now_s[0] = 5.0
    with pytest.raises(UnknownUpload):
        await images.prepare(asked, "a")


async def test_a_broken_upload_is_refused_at_once_and_holds_nothing():
    images = make()
    for data in (b"", b"no picture", files.png()[:-20]):
        with pytest.raises(InvalidRequest, match=r"images\[1\]"):
            await images.upload(data, "a")
    with pytest.raises(InvalidRequest, match="takes no images"):
        await make(takes_images=False).upload(files.png(), "a")
    assert images.num_held_bytes == 0


async def test_uploads_beyond_their_bound_are_told_before_they_are_decoded():
    images = make(max_uploads=1)
    await images.upload(files.png(), "a")
    with pytest.raises(Overloaded, match="--max-uploads"):
        await images.upload(b"no picture", "a")


async def test_what_a_request_holds_is_counted_until_it_is_closed():
    images = make()
    data = files.png()
    upload = await images.upload(data, "a")
    held = images.hold(chat(ImagePart(data), UploadedImage(upload.upload_id)), "a")
    assert images.num_held_bytes == 3 * PIXELS + len(data)
    held.let_files_go()
    assert images.num_held_bytes == 3 * PIXELS
    held.close()
    held.close()
    assert images.num_held_bytes == PIXELS


async def test_one_that_has_no_room_is_told_to_come_back():
    images = make(max_held_bytes=1 << 20)
    asked = chat(*[ImagePart(bytes(1 << 19))])
    held = images.hold(asked, "a")
    with pytest.raises(Overloaded, match="--max-held-images"):
        images.hold(asked, "a")
    held.close()
    assert images.hold(asked, "a")


class CountingProcessor:
    """Counts how many images are prepared at once."""

    num_bytes = PIXELS

    def __init__(self):
        self.num_running = self.most_running = 0
        self._lock = threading.Lock()

    def prepare(self, picture):
        with self._lock:
            self.num_running += 1
            self.most_running = max(self.most_running, self.num_running)
        time.sleep(0.01)
        with self._lock:
            self.num_running -= 1
        return IMAGES.processor.prepare(picture)


async def test_no_two_images_are_decoded_at_once():
    processor = CountingProcessor()
    images = PromptImages(make_text(images=replace(IMAGES, processor=processor)))
    asked = chat(*[ImagePart(files.png())] * 3)
    await asyncio.gather(*(images.prepare(asked, scope) for scope in "abc"))
    assert processor.most_running == 1


async def test_scopes_take_turns_at_each_image():
    images = make()
    order = []

    async def ask(scope, num_images):
        await images.prepare(chat(*[ImagePart(files.png())] * num_images), scope)
        order.append(scope)

    await asyncio.gather(ask("a", 3), ask("b", 1))
    assert order == ["b", "a"]


def test_the_card_says_what_is_taken():
    limits = ImageLimits(max_image_bytes=1, max_image_pixels=2, max_images=3)
    card = image_card(IMAGES, limits)
    assert (card.num_tokens, card.width, card.height) == (3, 4, 2)
    assert (card.max_image_bytes, card.max_image_pixels, card.max_images) == (1, 2, 3)
    assert image_card(None, limits) is None


def test_words_of_the_model_say_why_it_takes_none():
    text = replace(make_text(), no_images_reason="the model takes no images: no file")
    with pytest.raises(InvalidRequest, match="no file"):
        PromptImages(text).check(chat(ImagePart(b"x")), "")


FACTS = ImageFacts(num_tokens=3, token_id=ord("|"), width=4, height=2)


def test_a_model_whose_ranks_encode_nothing_takes_no_images():
    text = known_to_ranks(make_text(images=IMAGES), None)
    assert text.images is None
    assert text.no_images_reason == "the model takes no images: its ranks encode none"


def test_a_model_whose_files_and_ranks_agree_is_as_its_files_say():
    for images, facts in ((IMAGES, FACTS), (None, None), (None, FACTS)):
        text = make_text(images=images)
        assert known_to_ranks(text, facts) is text


@pytest.mark.parametrize(
    "change", [{"num_tokens": 4}, {"token_id": 9}, {"width": 5}, {"height": 3}]
)
def test_files_and_ranks_that_speak_of_other_images_are_refused_with_both(change):
    with pytest.raises(StartupFailed, match="4 x 2 pixels in 3 tokens of id 124, its weights"):
        known_to_ranks(make_text(images=IMAGES), replace(FACTS, **change))
