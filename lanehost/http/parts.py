"""The parts of a message: text, and images by data URL."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Tag

from lanehost.http.data_url import read_data_url
from lanehost.http.strict_object import Body, Neutral, not_built, refusal
from lanehost.job import ContentPart, ImagePart, TextPart


def _image_data(value: object) -> object:
    if not isinstance(value, str):
        kind = type(value).__name__
        raise refusal(f"is a {kind}, should be a data URL")
    try:
        return read_data_url(value)
    except ValueError as error:
        raise refusal(str(error)) from None


class TextBody(Body):
    """A part of a message that is text."""

    type: Literal["text"]
    text: str

    def to_part(self) -> ContentPart:
        """Return the part in the door's words."""
        return TextPart(self.text)


class ImageUrl(Body):
    """An image by its URL, of which only data URLs are taken."""

    not_built: ClassVar[Neutral] = {"detail": ("auto",)}
    url: Annotated[bytes, BeforeValidator(_image_data)]


class ImageBody(Body):
    """A part of a message that is an image."""

    type: Literal["image_url"]
    image_url: ImageUrl

    def to_part(self) -> ContentPart:
        """Return the part in the door's words."""
        return ImagePart(self.image_url.url)


def _kind(value: object) -> object:
    return value.get("type") if isinstance(value, dict) else None


def _built_kind(value: object) -> object:
    kind = _kind(value)
    if kind in ("input_audio", "file"):
        raise not_built("type", f"is {kind!r}, only 'text' and 'image_url' are built")
    return value


def _part_tag(value: object) -> str:
    return "~image" if _kind(value) == "image_url" else "~text"


PartBody = Annotated[
    Annotated[TextBody, Tag("~text")] | Annotated[ImageBody, Tag("~image")],
    Discriminator(_part_tag),
    BeforeValidator(_built_kind),
]
