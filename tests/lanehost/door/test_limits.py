import pytest

from lanehost.door.limits import (
    MAX_CHAT_MESSAGES,
    check_num_ids,
    check_num_messages,
    check_num_parts,
    check_num_stops,
    check_request_bytes,
    max_request_bytes,
    max_text_bytes,
)
from lanehost.errors import DoesNotFit, InvalidRequest
from tests.support.cards import make_card
from tests.support.fake_door import SEEING

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


def test_images_have_bytes_of_their_own_and_text_no_more_than_without() -> None:
    card = SEEING
    assert max_text_bytes(card) == 6 * MIB
    assert max_request_bytes(card) == 6 * MIB + 3 * MIB * 3 // 2
    check_request_bytes(9 * MIB, card, num_image_bytes=3 * MIB)
    with pytest.raises(DoesNotFit, match=f"has {6 * MIB + 1} bytes without its images, limit"):
        check_request_bytes(9 * MIB + 1, card, num_image_bytes=3 * MIB)
    with pytest.raises(DoesNotFit, match=f"has {11 * MIB} bytes, limit"):
        check_request_bytes(11 * MIB, card, num_image_bytes=11 * MIB)


def test_a_message_has_no_more_parts_than_any_needs() -> None:
    check_num_parts(1024, "parts")
    with pytest.raises(InvalidRequest, match="parts: has 1025, at most 1024"):
        check_num_parts(1025, "parts")


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
