"""What the doors refuse by its size alone, before anything is built of it.

Parsing holds the interpreter, also in a thread, so what one request can cost the others
is bounded by its bytes; what is built of it is bounded by counts. The bytes of images cost a copy
and no more: a model that takes images is sent more bytes, and the rest of its requests has the
bound that it would have without.
"""

from lanehost.door.model_card import ModelCard
from lanehost.engine.stops import MAX_STOP_IDS, MAX_STOP_STRINGS
from lanehost.errors import DoesNotFit, InvalidRequest
from lanehost.settings import MAX_MESSAGE_BYTES

MAX_CHAT_MESSAGES = 16_384
MAX_PARTS = 1024
# Many times what a token of text or an id in JSON takes.
_BYTES_PER_TOKEN = 64
# Long texts are told how many tokens they have at least, and not only that they are long.
_LEAST_BYTES = 6 * 1024 * 1024


# What base64 makes of each byte, and a little.
_MOST_PER_IMAGE_BYTE = 1.5


def max_text_bytes(card: ModelCard) -> int:
    """Return the most bytes of a request that is parsed at all, those of images apart."""
    return min(MAX_MESSAGE_BYTES, max(_LEAST_BYTES, _BYTES_PER_TOKEN * card.context_length))


def max_request_bytes(card: ModelCard) -> int:
    """Return the most bytes of a request that is parsed at all."""
    images = card.images
    num_bytes = 0 if images is None else images.max_images * images.max_image_bytes
    return min(MAX_MESSAGE_BYTES, max_text_bytes(card) + int(num_bytes * _MOST_PER_IMAGE_BYTE))


def check_request_bytes(num_bytes: int, card: ModelCard, *, num_image_bytes: int = 0) -> None:
    """Refuse what is too long to be a request to this model.

    Raises:
        DoesNotFit: it has more bytes than `max_request_bytes`, or more beside those of images than
            `max_text_bytes`.
    """
    limit = max_request_bytes(card)
    if num_bytes > limit:
        message = f"the request has {num_bytes} bytes, limit {limit}"
        raise DoesNotFit(message, have=num_bytes, limit=limit)
    num_bytes, limit = num_bytes - num_image_bytes, max_text_bytes(card)
    if num_bytes > limit:
        message = f"the request has {num_bytes} bytes without its images, limit {limit}"
        raise DoesNotFit(message, have=num_bytes, limit=limit)


def check_num_parts(num_parts: int, where: str) -> None:
    """Refuse more parts of one message than any needs.

    Raises:
        InvalidRequest: names the field, the count and the limit.
    """
    if num_parts > MAX_PARTS:
        raise InvalidRequest(where, f"has {num_parts}, at most {MAX_PARTS} are allowed")


def check_num_ids(num_ids: int, card: ModelCard) -> None:
    """Refuse more prompt ids than a sequence can have.

    Raises:
        DoesNotFit: the context or the KV pool can never hold them.
    """
    limit = min(card.context_length, card.kv_tokens)
    if num_ids > limit:
        which = "context length" if limit == card.context_length else "KV pool (--kv-tokens)"
        message = f"prompt has {num_ids} tokens, limit {limit} ({which})"
        raise DoesNotFit(message, have=num_ids, limit=limit)


def check_num_messages(num_messages: int, card: ModelCard) -> None:
    """Refuse a chat of more messages than the context has tokens.

    Raises:
        DoesNotFit: there are more, or more than 16,384.
    """
    limit = min(card.context_length, MAX_CHAT_MESSAGES)
    if num_messages > limit:
        message = f"chat has {num_messages} messages, limit {limit}"
        raise DoesNotFit(message, have=num_messages, limit=limit)


def check_num_stops(*, num_strings: int, num_ids: int) -> None:
    """Refuse more stop strings or stop ids than a job may have.

    Raises:
        InvalidRequest: names the field, the count and the limit.
    """
    for field, count, limit in (
        ("stop.strings", num_strings, MAX_STOP_STRINGS),
        ("stop.token_ids", num_ids, MAX_STOP_IDS),
    ):
        if count > limit:
            raise InvalidRequest(field, f"has {count}, at most {limit} are allowed")
