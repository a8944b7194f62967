"""The laws of lanehost.text.detokenizer, over four vocabularies."""

import doctest

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lanehost.text import detokenizer
from lanehost.text.detokenizer import Detokenizer
from lanehost.text.gguf_fields import GgufFields
from lanehost.text.gguf_tokenizer import tokenizer_from_gguf
from lanehost.text.hf_folder import HfFolder
from lanehost.text.hf_tokenizer import tokenizer_from_folder
from tests.support.text_models import spm_fields, train_byte_level, write_folder, write_gguf

relaxed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
# The embedded model has no token for some control bytes, nor for the first byte of U+40000 on.
spoken = st.characters(min_codepoint=0x20, max_codepoint=0x3FFFF, exclude_categories=["Cs"])
BYTES = tuple(bytes([byte]) for byte in range(256))


@pytest.fixture(scope="session")
def spm(tmp_path_factory):
    """A SentencePiece tokenizer with byte fallback and a space prefix."""
    path = tmp_path_factory.mktemp("spm") / "spm.gguf"
    return tokenizer_from_gguf(GgufFields(write_gguf(path, spm_fields())))


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory):
    """A byte-level tokenizer from a Hugging Face folder."""
    path = tmp_path_factory.mktemp("hf")
    return tokenizer_from_folder(HfFolder(write_folder(path, train_byte_level())))


def assert_streams_like_a_full_decode(tokenizer, ids, *, keep_special):
    stream = tokenizer.new_detokenizer(keep_special=keep_special)
    deltas = [stream.push(token_id) for token_id in ids]
    text = "".join(deltas) + stream.flush()
    assert text == tokenizer.decode(ids, keep_special=keep_special)
    for delta in deltas:
        delta.encode()  # whole characters: half a surrogate pair would raise


def ids_for(*texts):
    """Random ids, mixed with the ids of real text so that characters are split over tokens."""
    return st.lists(st.one_of(st.integers(-3, 400), st.sampled_from(texts)), max_size=40)


@given(items=ids_for("가", "🌱", " 나"), keep_special=st.booleans())
@relaxed
def test_a_small_byte_level_stream_is_a_full_decode(byte_level, items, keep_special):
    ids = []
    for item in items:
        ids += [item] if isinstance(item, int) else byte_level.encode(item)
    assert_streams_like_a_full_decode(byte_level, ids, keep_special=keep_special)


@given(items=ids_for("가다", "☀️", " hello"), keep_special=st.booleans())
@example(items=[" hello"], keep_special=False)
@relaxed
def test_a_sentencepiece_stream_is_a_full_decode(spm, items, keep_special):
    ids = []
    for item in items:
        ids += [item] if isinstance(item, int) else spm.encode_rendered(item)
    assert_streams_like_a_full_decode(spm, ids, keep_special=keep_special)


@pytest.mark.model
@given(
    ids=st.lists(st.one_of(st.integers(0, 49151), st.integers(17, 300)), max_size=60),
    keep_special=st.booleans(),
)
@relaxed
def test_a_stream_of_the_embedded_model_is_a_full_decode(embedded_text, ids, keep_special):
    assert_streams_like_a_full_decode(embedded_text.tokenizer, ids, keep_special=keep_special)


@pytest.mark.model
@given(text=st.text(alphabet=spoken, max_size=40))
@relaxed
def test_any_text_comes_back_through_a_stream_of_the_embedded_model(embedded_text, text):
    stream = embedded_text.tokenizer.new_detokenizer()
    ids = embedded_text.tokenizer.encode(text)
    assert "".join(map(stream.push, ids)) + stream.flush() == text


@given(data=st.binary(max_size=60))
def test_any_bytes_stream_as_they_decode(data):
    stream = Detokenizer(BYTES, skipped=frozenset())

    assert "".join(map(stream.push, data)) + stream.flush() == data.decode(errors="replace")


@given(text=st.text(max_size=40))
def test_a_character_is_given_with_its_last_byte(text):
    stream = Detokenizer(BYTES, skipped=frozenset())

    for character in text:
        *begin, end = character.encode()
        assert [stream.push(byte) for byte in begin] == [""] * len(begin)
        assert stream.push(end) == character
    assert stream.flush() == ""


def test_an_unfinished_character_is_flushed_as_one_replacement():
    stream = Detokenizer(BYTES, skipped=frozenset())

    assert [stream.push(byte) for byte in "🌱".encode()[:3]] == ["", "", ""]
    assert (stream.flush(), stream.flush()) == ("\ufffd", "")


def test_skipped_and_unknown_ids_give_no_text():
    stream = Detokenizer((b"a", b"<eos>"), skipped=frozenset({1}))

    assert [stream.push(token_id) for token_id in (1, 2, -1, 0)] == ["", "", "", "a"]


def test_only_a_first_space_is_dropped():
    stream = Detokenizer((b"", b" a", b" b"), skipped=frozenset(), strips_first_space=True)

    assert [stream.push(token_id) for token_id in (0, 1, 2, 1)] == ["", "a", " b", " a"]


def test_the_first_character_alone_decides_on_the_space():
    stream = Detokenizer((b" ", b" a"), skipped=frozenset(), strips_first_space=True)

    assert [stream.push(token_id) for token_id in (0, 1)] == ["", " a"]


def test_the_examples_run():
    assert doctest.testmod(detokenizer).failed == 0
