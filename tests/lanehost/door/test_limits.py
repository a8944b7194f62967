import pytest

from lanehost.door.limits import (
    MAX_CHAT_MESSAGES,
    check_num_ids,
    check_num_messages,
    check_num_stops,
    check_request_bytes,
    max_request_bytes,
)
from lanehost.errors import DoesNotFit, InvalidRequest
from tests.support.cards import make_card

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("context_length", "limit"),
    [(128, 6 * MIB), (131_072, 8 * MIB), (1 << 30, 64 * MIB)],
)
def test_the_bytes_that_are_parsed_follow_the_context(context_length: int, limit: int) -> None:
    card = make_card(context_length=context_length)
    assert max_request_bytes(card) == limit
    check_request_bytes(limit, card)
    with pytest.raises(DoesNotFit, match=f"{limit + 1} bytes, limit {limit}") as caught:
        check_request_bytes(limit + 1, card)
    assert (caught.value.have, caught.value.limit) == (limit + 1, limit)


@pytest.mark.parametrize(
    ("context_length", "kv_tokens", "which"), [(8, 9, "context length"), (9, 8, "KV pool")]
)
def test_more_ids_than_a_sequence_can_have_are_refused_with_the_numbers(
    context_length: int, kv_tokens: int, which: str
) -> None:
    card = make_card(context_length=context_length, kv_tokens=kv_tokens)
    check_num_ids(8, card)
    with pytest.raises(DoesNotFit, match=rf"9 tokens, limit 8 \({which}") as caught:
        check_num_ids(9, card)
    assert (caught.value.have, caught.value.limit) == (9, 8)


@pytest.mark.parametrize(("context_length", "limit"), [(8, 8), (1 << 20, MAX_CHAT_MESSAGES)])
def test_more_messages_than_the_context_has_tokens_are_refused(
    context_length: int, limit: int
) -> None:
    card = make_card(context_length=context_length)
    check_num_messages(limit, card)
    with pytest.raises(DoesNotFit, match=f"{limit + 1} messages, limit {limit}") as caught:
        check_num_messages(limit + 1, card)
    assert (caught.value.have, caught.value.limit) == (limit + 1, limit)


@pytest.mark.parametrize(
    ("counts", "field", "said"),
    [
        ({"num_strings": 17, "num_ids": 0}, "stop.strings", "has 17, at most 16"),
        ({"num_strings": 0, "num_ids": 1025}, "stop.token_ids", "has 1025, at most 1024"),
    ],
)
def test_more_stops_than_a_job_may_have_are_named(counts, field: str, said: str) -> None:
    check_num_stops(num_strings=16, num_ids=1024)
    with pytest.raises(InvalidRequest, match=said) as caught:
        check_num_stops(**counts)
    assert caught.value.field == field
