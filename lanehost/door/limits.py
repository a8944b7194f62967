"""What the doors refuse by its size alone, before anything is built of it.

Parsing holds the interpreter, also in a thread, so what one request can cost the others
is bounded by its bytes; what is built of it is bounded by counts.
"""

from lanehost.door.model_card import ModelCard
from lanehost.engine.stops import MAX_STOP_IDS, MAX_STOP_STRINGS
from lanehost.errors import DoesNotFit, InvalidRequest
from lanehost.settings import MAX_MESSAGE_BYTES

MAX_CHAT_MESSAGES = 16_384
# Many times what a token of text or an id in JSON takes.
_BYTES_PER_TOKEN = 64
# Long texts are told how many tokens they have at least, and not only that they are long.
_LEAST_BYTES = 6 * 1024 * 1024


def max_request_bytes(card: ModelCard) -> int:
    """Return the most bytes of a request that is parsed at all."""
    return min(MAX_MESSAGE_BYTES, max(_LEAST_BYTES, _BYTES_PER_TOKEN * card.context_length))


def check_request_bytes(num_bytes: int, card: ModelCard) -> None:
    """Refuse what is too long to be a request to this model.

    Raises:
        DoesNotFit: it has more bytes than `max_request_bytes`.
    """
    limit = max_request_bytes(card)
    if num_bytes > limit:
        message = f"the request has {num_bytes} bytes, limit {limit}"
        raise DoesNotFit(message, have=num_bytes, limit=limit)


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
