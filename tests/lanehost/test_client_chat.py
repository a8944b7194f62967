"""Chats as users of the client write them."""

from pathlib import Path

import pytest

from lanehost.client_chat import Image, encode_chat, encode_upload, uploaded
from lanehost.v1 import inference_pb2 as pb

MIB = 1 << 20
KEPT = pb.UploadImageResponse(upload_id="u1", lifetime_s=60.0)


def test_an_image_is_the_bytes_of_a_file_or_of_the_file_at_a_path(tmp_path: Path) -> None:
    path = tmp_path / "cat.png"
    path.write_bytes(b"file")
    for source in (b"file", path, str(path)):
        assert Image(source).data == b"file"
    with pytest.raises(FileNotFoundError):
        Image(tmp_path / "none.png")


def test_what_an_image_holds_is_not_shown() -> None:
    assert repr(Image(b"secret")) == "<Image 6 bytes>"
    assert repr(uploaded(KEPT)) == "<Image u1>"


def test_parts_are_texts_and_images_in_their_order() -> None:
    content = ["look: ", Image(b"file"), uploaded(KEPT), "what?"]
    chat = encode_chat([{"role": "user", "content": content}])
    assert chat == pb.Chat(
        messages=[
            pb.ChatMessage(
                role=pb.ROLE_USER,
                parts=[
                    pb.ContentPart(text="look: "),
                    pb.ContentPart(image=pb.Image(data=b"file")),
                    pb.ContentPart(image=pb.Image(upload_id="u1")),
                    pb.ContentPart(text="what?"),
                ],
            )
        ]
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], r"messages\[0\].content is a list, should be text, or texts and images"),
        (Image(b"a"), r"messages\[0\].content is a Image, should be text, or"),
        (["a", b"b"], r"messages\[0\].content\[1\] is a bytes, should be text or an Image"),
    ],
)
def test_what_is_no_content_is_named(content, said) -> None:
    with pytest.raises(ValueError, match=said):
        encode_chat([{"role": "user", "content": content}])


def test_an_upload_is_sent_in_pieces_of_a_mebibyte() -> None:
    data = bytes(range(256)) * (MIB // 256) * 2 + b"x"
    pieces = [piece.data for piece in encode_upload(data)]
    assert [len(piece) for piece in pieces] == [MIB, MIB, 1]
    assert b"".join(pieces) == data
    assert [piece.data for piece in encode_upload(b"")] == [b""]


def test_what_was_uploaded_is_not_uploaded_again() -> None:
    assert uploaded(KEPT).lifetime_s == 60.0
    with pytest.raises(ValueError, match="<Image u1> was uploaded before"):
        encode_upload(uploaded(KEPT))
