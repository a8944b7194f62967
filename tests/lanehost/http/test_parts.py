"""Parts of messages in JSON."""

import base64

import pytest
from pydantic import ValidationError

from lanehost.errors import InvalidRequest, NotBuilt
from lanehost.http.body import ChatBody
from lanehost.http.errors import to_refusal
from lanehost.job import ImagePart, TextPart
from tests.support import image_files as files

PNG = files.png()
URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
IMAGE = {"type": "image_url", "image_url": {"url": URL}}
WHERE = "messages[0].content[1]"


def body(*parts):
    return ChatBody.model_validate(
        {"model": "m", "messages": [{"role": "user", "content": list(parts)}]}
    )


def text(words):
    return {"type": "text", "text": words}


def test_parts_are_texts_and_images_in_their_order():
    (message,) = body(text("a"), IMAGE, text("b")).to_request().prompt.messages
    assert message.content == (TextPart("a"), ImagePart(PNG), TextPart("b"))


def test_texts_without_an_image_are_joined():
    (message,) = body(text("a "), text("b")).to_request().prompt.messages
    assert message.content == "a b"


@pytest.mark.parametrize("detail", ["auto", None])
def test_a_detail_that_asks_for_nothing_is_taken(detail):
    image = {"type": "image_url", "image_url": {"url": URL, "detail": detail}}
    assert body(image).to_request() == body(IMAGE).to_request()


@pytest.mark.parametrize(
    ("part", "kind", "field"),
    [
        (
            {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
            InvalidRequest,
            ".image_url.url",
        ),
        ({"type": "image_url", "image_url": {"url": 5}}, InvalidRequest, ".image_url.url"),
        ({"type": "image_url", "image_url": {}}, InvalidRequest, ".image_url.url"),
        ({"type": "image_url"}, InvalidRequest, ".image_url"),
        ({"type": "image_url", "image_url": URL}, InvalidRequest, ".image_url"),
        ({**IMAGE, "text": "a"}, InvalidRequest, ".text"),
        (
            {"type": "image_url", "image_url": {"url": URL, "detail": "high"}},
            NotBuilt,
            ".image_url.detail",
        ),
        ({"type": "file", "file": {}}, NotBuilt, ".type"),
        ({"type": "video"}, InvalidRequest, ".type"),
        ("a", InvalidRequest, ""),
    ],
)
def test_what_is_wrong_is_refused_by_its_path(part, kind, field):
    with pytest.raises(ValidationError) as caught:
        body(text("a"), part)
    refusal = to_refusal(caught.value)
    assert isinstance(refusal, kind)
    assert refusal.field == f"{WHERE}{field}"
    assert len(str(refusal)) < 300
