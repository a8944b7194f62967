import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.door.accept import (
    accept_length,
    accept_sampling,
    check_image_ids,
    check_label,
    check_prompt_bytes,
    check_prompt_ids,
)
from lanehost.errors import DoesNotFit, InvalidRequest
from lanehost.job import PreparedImage, PromptImage, SamplingParams
from ranks.plan import Draw
from tests.support.cards import make_card


def accept(**values):
    return accept_sampling(SamplingParams(**values), vocab_size=100, fresh_seed=77)


def test_absent_fields_take_the_defaults_and_a_fresh_seed():
    assert accept() == Draw(temperature=0.0, top_p=1.0, top_k=None, min_p=0.0, seed=77)


def test_given_fields_are_kept():
    given_values = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 3}
    assert accept(**given_values) == Draw(**given_values)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 100.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_p", math.nan),
        ("top_k", 0),
        ("top_k", 101),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("seed", -1),
        ("seed", 1 << 64),
    ],
)
def test_a_value_out_of_range_is_refused_by_field_value_and_limit(field, value):
    with pytest.raises(InvalidRequest, match="allowed is") as caught:
        accept(**{field: value})
    assert caught.value.field == f"sampling.{field}"
    assert str(value) in str(caught.value)


def test_an_empty_prompt_is_refused():
    with pytest.raises(InvalidRequest, match="no tokens"):
        check_prompt_ids((), vocab_size=10)


@pytest.mark.parametrize("token_id", [10, -1, 1 << 40])
def test_an_id_outside_the_vocabulary_is_refused_with_position_and_limit(token_id):
    with pytest.raises(InvalidRequest, match=rf"id {token_id} at position 2, allowed is 0 to 9"):
        check_prompt_ids((0, 9, token_id), vocab_size=10)


@given(num_prompt=st.integers(1, 300), max_tokens=st.none() | st.integers(0, 300))
def test_what_is_accepted_fits_and_what_is_refused_does_not(num_prompt, max_tokens):
    card = make_card(context_length=200, kv_tokens=150, default_max_tokens=64)
    wanted = num_prompt + (1 if max_tokens is None else max_tokens)
    if wanted > 150:
        with pytest.raises(DoesNotFit) as caught:
            accept_length(num_prompt, max_tokens, card=card)
        assert (caught.value.have, caught.value.limit) == (wanted, 150)
    else:
        accepted = accept_length(num_prompt, max_tokens, card=card)
        assert accepted == (min(64, 150 - num_prompt) if max_tokens is None else max_tokens)


@pytest.mark.parametrize(
    ("context_length", "which"), [(100, "context length"), (1000, r"--kv-tokens")]
)
def test_the_refusal_names_the_limit_that_was_met(context_length, which):
    card = make_card(context_length=context_length, kv_tokens=200)
    with pytest.raises(DoesNotFit, match=which):
        accept_length(300, 1, card=card)


@given(num_prompt=st.integers(1, 300), max_tokens=st.integers(200, 300))
def test_the_refusal_names_a_way_out_that_is_accepted(num_prompt, max_tokens):
    card = make_card(context_length=200, kv_tokens=150)
    with pytest.raises(DoesNotFit) as caught:
        accept_length(num_prompt, max_tokens, card=card)
    way_out = str(caught.value).split("; ")[1]
    if num_prompt < 150:
        left = int(way_out.removeprefix("max_tokens can be "))
        assert accept_length(num_prompt, left, card=card) == left
        with pytest.raises(DoesNotFit):
            accept_length(num_prompt, left + 1, card=card)
    else:
        assert way_out == "shorten the prompt"


def test_max_tokens_below_zero_is_refused():
    with pytest.raises(InvalidRequest, match="is -1, allowed is 0 and more"):
        accept_length(3, -1, card=make_card())


def test_without_a_prompt_cache_there_is_nothing_to_warm():
    card = make_card(has_prompt_cache=False)
    with pytest.raises(InvalidRequest, match=r"is 0, allowed is 1 .*--prompt-cache is off") as seen:
        accept_length(3, 0, card=card)
    assert seen.value.field == "max_tokens"
    assert accept_length(3, 1, card=card) == 1


def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenized():
    card = make_card(context_length=100, kv_tokens=100)
    check_prompt_bytes(999, longest_token_bytes=10, card=card)
    with pytest.raises(DoesNotFit, match="at least 100 tokens, limit 100"):
        check_prompt_bytes(1000, longest_token_bytes=10, card=card)


def test_the_tokens_of_images_count_where_the_text_alone_would_fit():
    card = make_card(context_length=20, kv_tokens=20)
    check_prompt_bytes(10, longest_token_bytes=1, card=card, num_image_tokens=9)
    with pytest.raises(DoesNotFit, match="10 bytes and images of 10 tokens, that is at least 20"):
        check_prompt_bytes(10, longest_token_bytes=1, card=card, num_image_tokens=10)


def test_ids_of_images_are_as_many_as_the_images_have():
    pixels = PreparedImage(digest=bytes(32), width=1, height=1, pixels=b"rgb")
    image = PromptImage(start=1, num_tokens=2, image=pixels)
    check_image_ids((1, 9, 9), (image,), image_token_id=9)
    check_image_ids((1, 2), (), image_token_id=9)
    with pytest.raises(InvalidRequest, match="has id 9 at position 1, which stands for an image"):
        check_image_ids((1, 9, 9, 9), (image,), image_token_id=9)


def test_a_label_longer_than_a_log_line_is_refused():
    check_label("x" * 256)
    with pytest.raises(InvalidRequest, match="has 257 characters, limit 256"):
        check_label("x" * 257)
