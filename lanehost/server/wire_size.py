"""How many bytes of a message are those of images, read off the wire before it is parsed.

Parsing builds an object for each message within, so a message that is long without images is
refused by its length alone; this says how much of it is images. It is a walk along one path of
fields, and gives up where the bytes are no protobuf, or have more fields than any request needs:
what is left then counts as no image.
"""

from contextlib import suppress

from lanehost.v1 import inference_pb2 as pb

# The messages of the longest chat, and parts enough for all its images.
_MAX_FIELDS = 40_000
_VARINT, _FIXED_64, _LENGTH, _FIXED_32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10
_PARTS = tuple(
    kind.DESCRIPTOR.fields_by_name[name].number
    for kind, name in (
        (pb.Chat, "messages"),
        (pb.ChatMessage, "parts"),
        (pb.ContentPart, "image"),
        (pb.Image, "data"),
    )
)


class _Stop(Exception):
    """The bytes are no protobuf, or too much of it."""


def image_bytes(wire: bytes, chat_field: int) -> int:
    """Count the bytes of images in a request whose chat has this field number."""
    walk = _Walk(wire, (chat_field, *_PARTS))
    with suppress(_Stop):
        walk.along(0, len(wire), 0)
    return walk.num_bytes


class _Walk:
    def __init__(self, wire: bytes, path: tuple[int, ...]) -> None:
        self._wire = wire
        self._path = path
        self._num_fields = 0
        self.num_bytes = 0

    def along(self, position: int, stop: int, depth: int) -> None:
        """Follow the path from here to the end of one message."""
        while position < stop:
            self._num_fields += 1
            if self._num_fields > _MAX_FIELDS:
                raise _Stop
            tag, position = self._varint(position, stop)
            begin, position = self._value(tag & 7, position, stop)
            if tag >> 3 != self._path[depth] or tag & 7 != _LENGTH:
                continue
            if depth == len(self._path) - 1:
                self.num_bytes += position - begin
            else:
                self.along(begin, position, depth + 1)

    def _value(self, kind: int, position: int, stop: int) -> tuple[int, int]:
        """Return where a value begins and where it ends."""
        begin = position
        if kind == _LENGTH:
            length, begin = self._varint(position, stop)
            end = begin + length
        elif kind == _VARINT:
            end = self._varint(position, stop)[1]
        elif kind in (_FIXED_32, _FIXED_64):
            end = position + (4 if kind == _FIXED_32 else 8)
        else:
            raise _Stop
        if end > stop:
            raise _Stop
        return begin, end

    def _varint(self, position: int, stop: int) -> tuple[int, int]:
        value = 0
        for index in range(_MAX_VARINT_BYTES):
            if position >= stop:
                break
            byte = self._wire[position]
            position += 1
            value |= (byte & 0x7F) << 7 * index
            if not byte & 0x80:
                return value, position
        raise _Stop
