"""Protobuf ↔ `Request`, `Event` and `ModelCard`: the only place that knows both.

What is wrong with a message is said here, in the words of the wire: bytes that are
none, a missing prompt, a role that is not set, a float that is not a number, a field
that this version does not know. What depends on the model (ids, lengths, ranges) is
the door's to judge. The decoders leave nothing of a message unread.

Law: counts are judged by `len()` before anything is built of them, since all of this
runs on the event loop.
"""

import math
from collections.abc import Iterable
from typing import Any, TypeVar, assert_never

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from lanehost.door.limits import (
    check_num_ids,
    check_num_messages,
    check_num_parts,
    check_num_stops,
)
from lanehost.door.model_card import ImageCard, ModelCard
from lanehost.door.uploads import Upload
from lanehost.errors import InvalidRequest, NotBuilt
from lanehost.job import (
    Accepted,
    ChatMessage,
    ChatPrompt,
    ContentPart,
    DiskUse,
    Finished,
    FinishReason,
    ImagePart,
    Priority,
    Prompt,
    Request,
    Resumption,
    Role,
    SamplingParams,
    StopParams,
    TextPart,
    TextPrompt,
    Timing,
    TokenPrompt,
    Tokens,
    UploadedImage,
    Usage,
)
from lanehost.v1 import inference_pb2 as pb

_ROLES = {
    pb.ROLE_SYSTEM: Role.SYSTEM,
    pb.ROLE_USER: Role.USER,
    pb.ROLE_ASSISTANT: Role.ASSISTANT,
}
_PRIORITIES = {
    pb.PRIORITY_UNSPECIFIED: Priority.FOREGROUND,
    pb.PRIORITY_FOREGROUND: Priority.FOREGROUND,
    pb.PRIORITY_BACKGROUND: Priority.BACKGROUND,
}
_DISK_USES = {
    pb.DISK_CACHE_UNSPECIFIED: DiskUse.DEFAULT,
    pb.DISK_CACHE_OFF: DiskUse.OFF,
    pb.DISK_CACHE_READ: DiskUse.READ,
    pb.DISK_CACHE_FULL: DiskUse.FULL,
}
_REASONS = {
    FinishReason.EOS: pb.FINISH_REASON_EOS,
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
}


# Naming unknown fields costs a hundred times what finding them does.
_MAX_NAMED_BYTES = 64 * 1024

MAX_REQUEST_ID_CHARACTERS = 128

_Kind = TypeVar("_Kind", bound=Message)


def parse(kind: type[_Kind], wire: bytes) -> _Kind:
    """Read the bytes of a message.

    Raises:
        InvalidRequest: they are not such a message; text that is not UTF-8 is none.
        NotBuilt: they have fields that this version does not know.
    """
    name = kind.DESCRIPTOR.name
    try:
        message = kind.FromString(wire)
    except DecodeError:
        raise InvalidRequest(name, f"these {len(wire)} bytes are not such a message") from None
    numbers = _unknown_numbers(message) if len(wire) <= _MAX_NAMED_BYTES else []
    # Dropping unknown fields of every depth and weighing again is two calls into C;
    # walking a chat of many messages here would not be.
    num_bytes = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != num_bytes:
        where = ", ".join(str(number) for number in numbers) or "in a message within it"
        raise NotBuilt(name, f"has fields that this version does not know: {where}")
    return message


def decode_request(
    message: pb.GenerateRequest | pb.StreamGenerateRequest,
    *,
    card: ModelCard,
    timeout_s: float | None,
) -> Request:
    """Read a request; the key that came with it is not in the message.

    Raises:
        InvalidRequest: a field is missing, not a number, or no value of its kind.
        DoesNotFit: there are more ids or messages than the model can ever take.
    """
    return Request(
        prompt=_decode_prompt(message, card),
        max_tokens=message.max_tokens if message.HasField("max_tokens") else None,
        sampling=_decode_sampling(message.sampling),
        stop=_decode_stop(message.stop),
        timeout_s=timeout_s,
        label=message.label,
        priority=_decode_priority(message.priority),
        disk_use=_decode_disk_use(message.disk_cache),
    )


def decode_tokenize(message: pb.TokenizeRequest, *, card: ModelCard) -> TextPrompt | ChatPrompt:
    """Read what to tokenize; raises as `decode_request` does."""
    match message.WhichOneof("prompt"):
        case "text":
            return TextPrompt(message.text)
        case "chat":
            return _decode_chat(message.chat, card)
        case _:
            raise InvalidRequest("prompt", "is missing: set one of text, chat")


def decode_detokenize(message: pb.DetokenizeRequest, *, card: ModelCard) -> tuple[int, ...]:
    """Read what to detokenize.

    Raises:
        InvalidRequest: there are more ids than the context holds.
    """
    num_ids, limit = len(message.token_ids), card.context_length
    if num_ids > limit:
        raise InvalidRequest("token_ids", f"has {num_ids} ids, limit {limit}")
    return tuple(message.token_ids)


def decode_resumption(
    message: pb.ResumeStreamRequest, *, timeout_s: float | None, key: str | None
) -> Resumption:
    """Read which stream is to go on, and where.

    Raises:
        InvalidRequest: it names none.
    """
    if not 0 < len(message.request_id) <= MAX_REQUEST_ID_CHARACTERS:
        reason = f"has {len(message.request_id)} characters, 1 to {MAX_REQUEST_ID_CHARACTERS} are"
        raise InvalidRequest("request_id", f"{reason} allowed")
    return Resumption(
        job_id=message.request_id, next_index=message.next_index, timeout_s=timeout_s, key=key
    )


def encode_event(event: Accepted | Tokens | Finished) -> pb.StreamGenerateResponse:
    """Write one event of a streamed reply."""
    return pb.StreamGenerateResponse(**_event_field(event))


def encode_resumed(event: Accepted | Tokens | Finished) -> pb.ResumeStreamResponse:
    """Write one event of a streamed reply that goes on."""
    return pb.ResumeStreamResponse(**_event_field(event))


def _event_field(event: Accepted | Tokens | Finished) -> dict[str, Any]:  # one of the oneof
    match event:
        case Accepted():
            return {"accepted": _encode_accepted(event)}
        case Tokens():
            return {"delta": pb.Delta(token_ids=event.token_ids, text=event.text)}
        case Finished():
            return {"finished": _encode_finished(event)}
        case _:  # pragma: no cover - mypy proves that nothing comes here
            assert_never(event)


def encode_reply(
    accepted: Accepted, tokens: Iterable[Tokens], finished: Finished
) -> pb.GenerateResponse:
    """Write one whole reply."""
    parts = list(tokens)
    return pb.GenerateResponse(
        accepted=_encode_accepted(accepted),
        text="".join(part.text for part in parts),
        token_ids=[token_id for part in parts for token_id in part.token_ids],
        finished=_encode_finished(finished),
    )


def encode_card(card: ModelCard) -> pb.GetModelResponse:
    """Write the model, its limits and defaults."""
    return pb.GetModelResponse(
        name=card.name,
        context_length=card.context_length,
        vocab_size=card.vocab_size,
        eos_token_ids=card.eos_token_ids,
        weights_digest=card.weights_digest,
        world_size=card.world_size,
        num_lanes=card.num_lanes,
        kv_tokens=card.kv_tokens,
        max_waiting=card.max_waiting,
        max_waiting_tokens=card.max_waiting_tokens,
        default_sampling=_encode_sampling(card.default_sampling),
        default_max_tokens=card.default_max_tokens,
        dtype=card.dtype,
        weights=card.weights,
        version=card.version,
        config_digest=card.config_digest,
        max_streams=card.max_streams,
        has_prompt_cache=card.has_prompt_cache,
        images=None if card.images is None else _encode_images(card.images),
    )


def encode_upload(upload: Upload) -> pb.UploadImageResponse:
    """Write what a client is told of its upload."""
    return pb.UploadImageResponse(upload_id=upload.upload_id, lifetime_s=upload.lifetime_s)


def _encode_images(images: ImageCard) -> pb.ImageFacts:
    return pb.ImageFacts(
        num_tokens=images.num_tokens,
        width=images.width,
        height=images.height,
        max_images=images.max_images,
        max_image_bytes=images.max_image_bytes,
        max_image_pixels=images.max_image_pixels,
    )


def _unknown_numbers(message: Message) -> list[int]:
    unknown = UnknownFieldSet(message)
    return sorted({unknown[index].field_number for index in range(len(unknown))})


def _decode_prompt(
    message: pb.GenerateRequest | pb.StreamGenerateRequest, card: ModelCard
) -> Prompt:
    match message.WhichOneof("prompt"):
        case "text":
            return TextPrompt(message.text)
        case "token_ids":
            check_num_ids(len(message.token_ids.ids), card)
            return TokenPrompt(tuple(message.token_ids.ids))
        case "chat":
            return _decode_chat(message.chat, card)
        case _:
            raise InvalidRequest("prompt", "is missing: set one of text, token_ids, chat")


def _decode_chat(chat: pb.Chat, card: ModelCard) -> ChatPrompt:
    check_num_messages(len(chat.messages), card)
    if not chat.messages:
        raise InvalidRequest("chat.messages", "is empty, at least 1 is needed")
    return ChatPrompt(
        tuple(
            ChatMessage(
                role=_decode_role(message.role, index), content=_decode_content(message, index)
            )
            for index, message in enumerate(chat.messages)
        )
    )


def _decode_content(message: pb.ChatMessage, index: int) -> str | tuple[ContentPart, ...]:
    if not message.parts:
        return message.content
    where = f"chat.messages[{index}].parts"
    if message.content:
        raise InvalidRequest(where, "are set, and content is: send one of them")
    check_num_parts(len(message.parts), where)
    return tuple(_decode_part(part, f"{where}[{n}]") for n, part in enumerate(message.parts))


def _decode_part(part: pb.ContentPart, where: str) -> ContentPart:
    match part.WhichOneof("part"), part.image.WhichOneof("source"):
        case "text", _:
            return TextPart(part.text)
        case "image", "data":
            return ImagePart(part.image.data)
        case "image", "upload_id":
            return UploadedImage(part.image.upload_id)
        case "image", _:
            raise InvalidRequest(f"{where}.image", "is empty: set one of data, upload_id")
        case _:
            raise InvalidRequest(where, "is empty: set one of text, image")


def _decode_role(role: pb.Role, index: int) -> Role:
    try:
        return _ROLES[role]
    except KeyError:
        raise InvalidRequest(
            f"chat.messages[{index}].role", f"is {int(role)}, allowed are system, user, assistant"
        ) from None


def _decode_sampling(message: pb.SamplingParams) -> SamplingParams:
    return SamplingParams(
        temperature=_decode_float(message, "temperature"),
        top_p=_decode_float(message, "top_p"),
        top_k=message.top_k if message.HasField("top_k") else None,
        min_p=_decode_float(message, "min_p"),
        seed=message.seed if message.HasField("seed") else None,
    )


def _decode_float(message: pb.SamplingParams, name: str) -> float | None:
    if not message.HasField(name):
        return None
    value: float = getattr(message, name)
    if not math.isfinite(value):
        raise InvalidRequest(f"sampling.{name}", f"is {value}, which is not a finite number")
    return value


def _decode_stop(message: pb.StopParams) -> StopParams:
    check_num_stops(num_strings=len(message.strings), num_ids=len(message.token_ids))
    return StopParams(
        strings=tuple(message.strings),
        token_ids=tuple(message.token_ids),
        ignore_eos=message.ignore_eos,
    )


def _decode_priority(priority: pb.Priority) -> Priority:
    try:
        return _PRIORITIES[priority]
    except KeyError:
        message = f"is {int(priority)}, allowed are foreground, background"
        raise InvalidRequest("priority", message) from None


def _decode_disk_use(use: pb.DiskCache) -> DiskUse:
    try:
        return _DISK_USES[use]
    except KeyError:
        message = f"is {int(use)}, allowed are off, read, full"
        raise InvalidRequest("disk_cache", message) from None


def _encode_accepted(event: Accepted) -> pb.Accepted:
    return pb.Accepted(request_id=event.job_id, seed=event.seed, prompt_tokens=event.prompt_tokens)


def _encode_finished(event: Finished) -> pb.Finished:
    return pb.Finished(
        reason=_REASONS[event.reason],
        stop_string=event.matched if isinstance(event.matched, str) else None,
        stop_token_id=event.matched if isinstance(event.matched, int) else None,
        usage=_encode_usage(event.usage),
        timing=_encode_timing(event.timing),
    )


def _encode_usage(usage: Usage) -> pb.Usage:
    return pb.Usage(
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        disk_cached_tokens=usage.disk_cached_tokens,
        image_tokens=usage.image_tokens,
    )


def _encode_timing(timing: Timing) -> pb.Timing:
    return pb.Timing(
        queue_s=timing.queue_s,
        prefill_s=timing.prefill_s,
        decode_s=timing.decode_s,
        encode_s=timing.encode_s,
    )


def _encode_sampling(sampling: SamplingParams) -> pb.SamplingParams:
    return pb.SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        seed=sampling.seed,
    )
