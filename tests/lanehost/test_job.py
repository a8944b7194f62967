"""The texts of a message, and what a prompt with images is known by."""

from dataclasses import replace
from hashlib import blake2b

import pytest

from lanehost.job import (
    IMAGE_ID_BASE,
    ChatMessage,
    ImagePart,
    Job,
    PreparedImage,
    PromptImage,
    Role,
    TextPart,
    UploadedImage,
)
from ranks.plan import Draw

DRAW = Draw(temperature=0.0, top_p=1.0, top_k=None, min_p=0.0, seed=1)


def image(name: bytes) -> PreparedImage:
    return PreparedImage(
        digest=blake2b(name, digest_size=32).digest(), width=1, height=1, pixels=b"rgb"
    )


def job(prompt_ids, *blocks) -> Job:
    images = tuple(
        PromptImage(start=start, num_tokens=num_tokens, image=image(name))
        for start, num_tokens, name in blocks
    )
    return Job(
        job_id="1", prompt_ids=prompt_ids, max_tokens=1, draw=DRAW, arrived_s=0.0, images=images
    )


def test_the_text_of_a_message_with_parts_is_that_of_its_text_parts():
    parts = (TextPart("a "), ImagePart(b"x"), TextPart("b"), UploadedImage("u"))
    message = ChatMessage(role=Role.USER, content=parts)
    assert message.text == "a b"
    assert message.images == (ImagePart(b"x"), UploadedImage("u"))


def test_a_message_of_text_alone_has_its_text_and_no_images():
    message = ChatMessage(role=Role.USER, content="hello")
    assert (message.text, message.images) == ("hello", ())


def test_a_prompt_without_images_is_known_by_its_very_ids():
    prompt_ids = (5, 6, 7)
    assert job(prompt_ids).identity_ids is prompt_ids


def test_each_position_of_a_block_is_known_by_the_image_alone():
    ids = job((5, 9, 9, 6, 9, 9, 9), (1, 2, b"a"), (4, 3, b"b")).identity_ids
    first, second = (IMAGE_ID_BASE + int.from_bytes(image(name).digest) for name in (b"a", b"b"))
    assert ids == (5, first, first, 6, second, second, second)
    assert first != second


def test_no_token_id_is_that_of_an_image():
    zero = PromptImage(
        start=0,
        num_tokens=1,
        image=PreparedImage(digest=bytes(32), width=1, height=1, pixels=b"rgb"),
    )
    assert replace(job((9,)), images=(zero,)).identity_ids == (IMAGE_ID_BASE,)
    assert IMAGE_ID_BASE > 2**63


def test_the_identity_follows_a_changed_prompt():
    assert replace(job((1, 9), (1, 1, b"a")), images=()).identity_ids == (1, 9)


@pytest.mark.parametrize(
    "blocks",
    [[(1, 2, b"a"), (2, 2, b"b")], [(3, 2, b"a")], [(2, 1, b"a"), (0, 1, b"b")], [(1, 0, b"a")]],
)
def test_blocks_that_cross_leave_the_prompt_or_are_empty_are_a_fault(blocks):
    with pytest.raises(AssertionError, match="blocks cross or leave"):
        job((9, 9, 9, 9), *blocks)


def test_neither_files_nor_pixels_are_shown():
    assert "secret" not in repr((ImagePart(b"secret"), replace(image(b"a"), pixels=b"secret")))
