"""Images on the wire; test_codec.py has their round trip."""

import pytest

from lanehost.errors import InvalidRequest
from lanehost.server import codec
from lanehost.v1 import inference_pb2 as pb
from tests.support.fake_door import CARD, SEEING


def test_what_a_model_takes_of_images_is_written_whole_and_absent_where_it_takes_none() -> None:
    facts = codec.encode_card(SEEING).images
    for field in pb.ImageFacts.DESCRIPTOR.fields:
        assert getattr(facts, field.name) == getattr(SEEING.images, field.name)
    assert not codec.encode_card(CARD).HasField("images")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"content": "a", "parts": [pb.ContentPart(text="b")]}, "parts: are set, and content is"),
        ({"parts": [pb.ContentPart()]}, "parts[0]: is empty: set one of text, image"),
        (
            {"parts": [pb.ContentPart(text=""), pb.ContentPart(image=pb.Image())]},
            "parts[1].image: is empty: set one of data, upload_id",
        ),
        ({"parts": [pb.ContentPart(text="")] * 1025}, "parts: has 1025, at most 1024"),
    ],
)
def test_a_part_that_is_none_is_named(message, said) -> None:
    chat = pb.Chat(messages=[pb.ChatMessage(role=pb.ROLE_USER, **message)])
    with pytest.raises(InvalidRequest) as refusal:
        codec.decode_request(pb.GenerateRequest(chat=chat), timeout_s=None, card=SEEING)
    assert str(refusal.value).startswith(f"chat.messages[0].{said}")
