"""Chats as users of the Python client write them: messages of text and images, to protobuf."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from lanehost.job import Role
from lanehost.v1 import inference_pb2 as pb

_ROLES = {role.value: pb.Role.Value(f"ROLE_{role.name}") for role in Role}
_PIECE_BYTES = 1 << 20
# The bytes of a file, or its path.
Source = bytes | str | os.PathLike[str]


class Image:
    """An image for a message: the bytes of a JPEG, PNG or WebP file, or the path of one.

    The file is read at once. One that `upload_image` returned names what the server keeps, for
    `lifetime_s` seconds, and has no bytes.
    """

    __slots__ = ("data", "lifetime_s", "upload_id")

    def __init__(self, source: Source) -> None:
        """Take the bytes of a file, or read a file.

        Raises:
            OSError: it cannot be read.
        """
        self.data = bytes(source) if isinstance(source, bytes) else Path(source).read_bytes()
        self.upload_id: str | None = None
        self.lifetime_s: float | None = None

    def __repr__(self) -> str:
        """Show how large it is, or what it is called."""
        what = f"{len(self.data)} bytes" if self.upload_id is None else self.upload_id
        return f"<Image {what}>"


class Message(TypedDict):
    """One message of a chat; `role` is system, user or assistant.

    `content` is text, or a list of texts and images in their order.
    """

    role: str
    content: str | Sequence[str | Image]


def uploaded(reply: pb.UploadImageResponse) -> Image:
    """Return the image that a server keeps."""
    image = Image(b"")
    image.upload_id, image.lifetime_s = reply.upload_id, reply.lifetime_s
    return image


def encode_upload(source: Image | Source) -> Iterator[pb.UploadImageRequest]:
    """Write the pieces of an image's file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is one that was uploaded.
    """
    image = source if isinstance(source, Image) else Image(source)
    if image.upload_id is not None:
        raise ValueError(f"{image!r} was uploaded before")
    data = image.data
    # One piece at least: a file of no bytes is refused by the server, in its words.
    return (
        pb.UploadImageRequest(data=data[begin : begin + _PIECE_BYTES])
        for begin in range(0, max(1, len(data)), _PIECE_BYTES)
    )


def encode_chat(messages: Iterable[Message]) -> pb.Chat:
    """Write a chat.

    Raises:
        ValueError: a message is not one, or its role is not system, user or assistant.
    """
    chat = pb.Chat()
    for index, message in enumerate(messages):
        _check_message(index, message)
        content = message["content"]
        into = chat.messages.add(role=_ROLES[message["role"]])
        if isinstance(content, str):
            into.content = content
        else:
            into.parts.extend(_encode_part(part) for part in content)
    return chat


def _encode_part(part: str | Image) -> pb.ContentPart:
    if isinstance(part, str):
        return pb.ContentPart(text=part)
    if part.upload_id is not None:
        return pb.ContentPart(image=pb.Image(upload_id=part.upload_id))
    return pb.ContentPart(image=pb.Image(data=part.data))


def _check_message(index: int, message: Any) -> None:  # what a user of the client gave
    where = f"messages[{index}]"
    if not isinstance(message, Mapping) or message.keys() != {"role", "content"}:
        raise ValueError(f"{where} is not an object of role and content")
    if message["role"] not in _ROLES:
        role, allowed = message["role"], ", ".join(_ROLES)
        raise ValueError(f"{where}.role is {role!r}, allowed are {allowed}")
    content = message["content"]
    if isinstance(content, str):
        return
    if not isinstance(content, list | tuple) or not content:
        kind = type(content).__name__
        raise ValueError(f"{where}.content is a {kind}, should be text, or texts and images")
    for number, part in enumerate(content):
        if not isinstance(part, str | Image):
            found = f"{where}.content[{number}] is a {type(part).__name__}"
            raise ValueError(f"{found}, should be text or an Image")  # noqa: TRY004 - as above
