"""How much of a message is images, before it is parsed."""

from hypothesis import given
from hypothesis import strategies as st

from lanehost.server.wire_size import image_bytes
from lanehost.v1 import inference_pb2 as pb

CHAT = pb.GenerateRequest.DESCRIPTOR.fields_by_name["chat"].number


def request(*messages, **fields):
    return pb.GenerateRequest(chat=pb.Chat(messages=messages), **fields).SerializeToString()


def message(*parts, **fields):
    return pb.ChatMessage(role=pb.ROLE_USER, parts=parts, **fields)


def image(num_bytes):
    return pb.ContentPart(image=pb.Image(data=bytes(num_bytes)))


@given(
    st.lists(st.lists(st.integers(0, 70_000) | st.text(max_size=9), max_size=4), max_size=4),
    st.text(max_size=5),
)
def test_the_bytes_of_all_images_are_counted_and_no_others(chat, label):
    wire = request(
        *(
            message(
                *(image(one) if isinstance(one, int) else pb.ContentPart(text=one) for one in turn)
            )
            for turn in chat
        ),
        label=label,
        max_tokens=5,
        sampling=pb.SamplingParams(temperature=1.0, seed=7),
    )
    expected = sum(one for turn in chat for one in turn if isinstance(one, int))
    assert image_bytes(wire, CHAT) == expected


def test_a_text_and_an_upload_s_name_are_no_image():
    named = pb.ContentPart(image=pb.Image(upload_id="x" * 500))
    wire = request(message(named, pb.ContentPart(text="y" * 500)), message(content="z" * 500))
    assert image_bytes(wire, CHAT) == 0
    assert image_bytes(request(message(image(9))), 7) == 0


@given(st.binary(max_size=300))
def test_bytes_that_are_no_message_have_at_most_their_own_length(wire):
    assert 0 <= image_bytes(wire, CHAT) <= len(wire)


def test_a_message_of_too_many_fields_is_not_walked_to_its_end():
    wire = request(*[pb.ChatMessage()] * 50_000, message(image(9)))
    assert image_bytes(wire, CHAT) == 0
