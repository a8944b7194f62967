"""Works on images cross the wire; pixels are as many as they must be, and rows have a digest."""

import pytest

from ranks.errors import BadMessage
from ranks.wire import rank_pb2 as pb
from ranks.wire.codec import (
    decode_master_message,
    decode_rank_message,
    encode_master_message,
    encode_rank_message,
)
from ranks.wire.image_messages import (
    MAX_PIXEL_BYTES,
    EncodeImage,
    ImageDone,
    ImageFacts,
    ImageFault,
    ImageOrder,
)
from tests.support.rank_facts import loaded

D = bytes(32)
ROWS = {"num_tokens": 1, "rows_digest": bytes(16)}


@pytest.mark.parametrize("fault", list(ImageFault))
def test_every_fault_has_a_number_of_its_own(fault):
    done = ImageDone(epoch=1, image_id=1, fault=fault)
    assert decode_rank_message(encode_rank_message(done)) == done


@pytest.mark.parametrize("facts", [None, ImageFacts(num_tokens=4, token_id=0, width=8, height=6)])
def test_what_images_are_arrives_with_what_was_loaded(facts):
    message = loaded(image_facts=facts)
    assert decode_rank_message(encode_rank_message(message)).image_facts == facts


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"digest": "ab"}, "hex digits"),
        ({"digest": "zz" * 32}, "hex"),
        ({"pixels": b"12345"}, "2 by 1 pixels take 6 bytes, there are 5"),
        ({"width": 0}, "0 by 1 pixels has none"),
        ({"width": 2**12, "height": 2**12}, f"limit {MAX_PIXEL_BYTES}"),
    ],
)
def test_what_is_no_image_is_not_sent(changes, names):
    usual = {"image_id": 1, "digest": "00" * 32, "width": 2, "height": 1, "pixels": b"123456"}
    order = ImageOrder(epoch=1, work=EncodeImage(**(usual | changes)))
    with pytest.raises(ValueError, match=names):
        encode_master_message(order)


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, "image_order.work is absent"),
        ({"epoch": 0, "drop": pb.DropImage(image_id=1)}, "image_order.epoch is 0"),
        ({"drop": pb.DropImage()}, "drop.image_id is 0"),
        ({"cancel": pb.CancelImage()}, "cancel.image_id is 0"),
        ({"encode": pb.EncodeImage()}, "0 by 0 pixels has none"),
        (
            {"encode": pb.EncodeImage(image_id=1, digest=D, width=2**31, height=2**31)},
            f"limit {MAX_PIXEL_BYTES}",
        ),
        (
            {"encode": pb.EncodeImage(image_id=1, digest=D, width=1, height=1, pixels=b"12")},
            "take 3 bytes, there are 2",
        ),
        (
            {"encode": pb.EncodeImage(image_id=1, width=1, height=1, pixels=b"123")},
            "encode.digest has 0 bytes",
        ),
        (
            {"encode": pb.EncodeImage(digest=D, width=1, height=1, pixels=b"123")},
            "encode.image_id is 0",
        ),
    ],
)
def test_a_broken_work_is_refused_by_field(fields, names):
    order = pb.ImageOrder(**({"epoch": 1} | fields))
    with pytest.raises(BadMessage, match=names):
        decode_master_message(pb.ConnectResponse(image_order=order).SerializeToString())


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        (ROWS | {"epoch": 0}, "image_done.epoch is 0"),
        (ROWS | {"image_id": 0}, "image_done.image_id is 0"),
        ({}, "image_done.num_tokens is 0"),
        ({"num_tokens": 1}, "image_done.rows_digest has 0 bytes"),
        ({"fault": 99}, "image_done.fault is 99"),
        ({"fault": 1, "num_tokens": 1}, "has rows, and the fault cancelled"),
        ({"fault": 2, "rows_digest": bytes(16)}, "has rows, and the fault out_of_memory"),
    ],
)
def test_a_broken_answer_is_refused_by_field(fields, names):
    done = pb.ImageDone(**({"epoch": 1, "image_id": 1} | fields))
    with pytest.raises(BadMessage, match=names):
        decode_rank_message(pb.ConnectRequest(image_done=done).SerializeToString())


@pytest.mark.parametrize("field", ["num_tokens", "width", "height"])
def test_broken_facts_are_refused_by_field(field):
    facts = pb.ImageFacts(**({"num_tokens": 1, "width": 1, "height": 1} | {field: 0}))
    message = pb.ConnectRequest.FromString(encode_rank_message(loaded()))
    message.loaded.image_facts.CopyFrom(facts)
    with pytest.raises(BadMessage, match=f"image_facts.{field} is 0"):
        decode_rank_message(message.SerializeToString())
