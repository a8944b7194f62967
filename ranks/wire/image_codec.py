"""Works on images, between plain data and protobuf, for `codec` alone.

Law: pixels on the wire are as many as width and height say, and no more than one message holds;
an image that is done has rows and their digest, or a fault and neither.
"""

from ranks.errors import BadMessage
from ranks.wire import rank_pb2 as pb
from ranks.wire.checks import digest_of, known, positive
from ranks.wire.image_messages import (
    BYTES_PER_PIXEL,
    MAX_PIXEL_BYTES,
    CancelImage,
    DropImage,
    EncodeImage,
    ImageDone,
    ImageFacts,
    ImageFault,
    ImageOrder,
    ImageWork,
)

_DIGEST_BYTES = 32
_PB_TO_FAULT: dict[int, ImageFault] = {
    int(pb.ImageFault.Value(f"IMAGE_FAULT_{fault.name}")): fault for fault in ImageFault
}


def facts_to_pb(facts: ImageFacts) -> pb.ImageFacts:
    """Turn what images are into protobuf, for the wire."""
    return pb.ImageFacts(
        num_tokens=facts.num_tokens,
        token_id=facts.token_id,
        width=facts.width,
        height=facts.height,
    )


def facts_from_pb(facts: pb.ImageFacts) -> ImageFacts:
    """Take what images are from the wire.

    Raises:
        BadMessage: A field breaks its own rules.
    """
    return ImageFacts(
        num_tokens=positive("image_facts.num_tokens", facts.num_tokens),
        token_id=facts.token_id,
        width=positive("image_facts.width", facts.width),
        height=positive("image_facts.height", facts.height),
    )


def image_order_to_pb(order: ImageOrder) -> pb.ImageOrder:
    """Turn a work into protobuf, for the wire.

    Raises:
        ValueError: A digest is none, the pixels are not as many as they should be or too many,
            or a number does not fit its field.
    """
    match order.work:
        case EncodeImage() as work:
            return pb.ImageOrder(epoch=order.epoch, encode=_encode_to_pb(work))
        case CancelImage(image_id=image_id):
            return pb.ImageOrder(epoch=order.epoch, cancel=pb.CancelImage(image_id=image_id))
        case DropImage(image_id=image_id):
            return pb.ImageOrder(epoch=order.epoch, drop=pb.DropImage(image_id=image_id))


def image_order_from_pb(order: pb.ImageOrder) -> ImageOrder:
    """Take a work from the wire.

    Raises:
        BadMessage: A field breaks its own rules.
    """
    return ImageOrder(
        epoch=positive("image_order.epoch", order.epoch),
        work=_work_from_pb(order),
    )


def image_done_to_pb(done: ImageDone) -> pb.ImageDone:
    """Turn what became of an image into protobuf, for the wire."""
    return pb.ImageDone(
        epoch=done.epoch,
        image_id=done.image_id,
        fault=None if done.fault is None else f"IMAGE_FAULT_{done.fault.name}",
        message=done.message,
        num_tokens=done.num_tokens,
        rows_digest=done.rows_digest,
        took_ns=done.took_ns,
    )


def image_done_from_pb(done: pb.ImageDone) -> ImageDone:
    """Take what became of an image from the wire.

    Raises:
        BadMessage: A field breaks its own rules.
    """
    fault = known("image_done.fault", done.fault, _PB_TO_FAULT) if done.fault else None
    if fault is None:
        positive("image_done.num_tokens", done.num_tokens)
        digest_of("image_done.rows_digest", done.rows_digest)
    elif done.num_tokens or done.rows_digest:
        raise BadMessage(f"image_done has rows, and the fault {fault.value}")
    return ImageDone(
        epoch=positive("image_done.epoch", done.epoch),
        image_id=positive("image_done.image_id", done.image_id),
        fault=fault,
        message=done.message,
        num_tokens=done.num_tokens,
        rows_digest=done.rows_digest,
        took_ns=done.took_ns,
    )


def _encode_to_pb(work: EncodeImage) -> pb.EncodeImage:
    wrong = _why_no_image(work.width, work.height, len(work.pixels))
    if wrong is not None:
        raise ValueError(wrong)
    if len(work.digest) != 2 * _DIGEST_BYTES:
        raise ValueError(f"a digest is {work.digest!r}, it has {2 * _DIGEST_BYTES} hex digits")
    return pb.EncodeImage(
        image_id=work.image_id,
        digest=bytes.fromhex(work.digest),
        width=work.width,
        height=work.height,
        pixels=work.pixels,
    )


def _work_from_pb(order: pb.ImageOrder) -> ImageWork:
    match order.WhichOneof("work"):
        case "encode":
            return _encode_from_pb(order.encode)
        case "cancel":
            return CancelImage(image_id=positive("cancel.image_id", order.cancel.image_id))
        case "drop":
            return DropImage(image_id=positive("drop.image_id", order.drop.image_id))
        case _:
            raise BadMessage("image_order.work is absent")


def _encode_from_pb(work: pb.EncodeImage) -> EncodeImage:
    wrong = _why_no_image(work.width, work.height, len(work.pixels))
    if wrong is not None:
        raise BadMessage(wrong)
    if len(work.digest) != _DIGEST_BYTES:
        raise BadMessage(f"encode.digest has {len(work.digest)} bytes, there are {_DIGEST_BYTES}")
    return EncodeImage(
        image_id=positive("encode.image_id", work.image_id),
        digest=work.digest.hex(),
        width=work.width,
        height=work.height,
        pixels=work.pixels,
    )


def _why_no_image(width: int, height: int, num_bytes: int) -> str | None:
    needed = width * height * BYTES_PER_PIXEL
    if needed < 1:
        return f"an image of {width} by {height} pixels has none"
    if needed > MAX_PIXEL_BYTES:
        return f"{width} by {height} pixels take {needed} bytes, limit {MAX_PIXEL_BYTES}"
    if num_bytes != needed:
        return f"{width} by {height} pixels take {needed} bytes, there are {num_bytes}"
    return None
