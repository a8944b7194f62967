"""The laws of lanehost.text.pieces."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, pre_tokenizers

from lanehost.text import pieces
from lanehost.text.pieces import byte_level_piece, sentencepiece_piece

alphabet = st.sampled_from(sorted(pre_tokenizers.ByteLevel.alphabet()))


@given(token=st.text(alphabet=alphabet, max_size=20))
def test_byte_level_bytes_are_those_of_the_reference(token):
    expected = decoders.ByteLevel().decode([token])

    assert byte_level_piece(token).decode(errors="replace") == expected


@given(text=st.text(max_size=20))
def test_a_byte_level_token_spells_its_bytes(text):
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spelled = "".join(token for token, _ in words.pre_tokenize_str(text))

    assert byte_level_piece(spelled) == text.encode()


def test_a_token_outside_the_byte_alphabet_is_its_own_text():
    assert byte_level_piece("a b\uff5c") == "a b\uff5c".encode()


@pytest.mark.parametrize(
    ("token", "data"),
    [
        ("▁a▁", b" a "),
        ("<0x0A>", b"\n"),
        ("<0xfF>", b"\xff"),
        ("<0x0A>x", b"<0x0A>x"),
        ("<0xGG>", b"<0xGG>"),
    ],
)
def test_sentencepiece_tokens_are_text_or_one_byte(token, data):
    assert sentencepiece_piece(token) == data


def test_the_examples_run():
    assert doctest.testmod(pieces).failed == 0
