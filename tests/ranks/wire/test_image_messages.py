"""Words about images: none of them shows pixels."""

from ranks.wire.image_messages import MAX_PIXEL_BYTES, EncodeImage
from ranks.wire.messages import MAX_MESSAGE_BYTES


def test_no_repr_shows_the_pixels():
    work = EncodeImage(image_id=1, digest="00" * 32, width=1, height=1, pixels=b"SECRET")
    assert "SECRET" not in repr(work)


def test_a_message_has_room_for_the_largest_image():
    assert MAX_PIXEL_BYTES + 4096 <= MAX_MESSAGE_BYTES
