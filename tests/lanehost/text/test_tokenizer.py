"""The laws of lanehost.text.tokenizer; the golden cases are those of the float32 reference."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Pipeline

from lanehost.errors import InvalidRequest
from lanehost.job import ChatMessage, Role
from lanehost.text.pieces import Pieces, byte_level_piece
from lanehost.text.tokenizer import Tokenizer
from tests.support.text_models import train_byte_level

CASES = Path(__file__).parents[2] / "data" / "smollm2_greedy.jsonl"


def letters(*, adds_bos=True, cut=None, **pieces):
    """A tokenizer of three letters and a bos."""
    pipeline = Pipeline(models.BPE({"<s>": 0, "a": 1, "b": 2, "c": 3}, []))
    pipeline.add_special_tokens(["<s>"])
    if cut is not None:
        pipeline.pre_tokenizer = cut
    if adds_bos:
        pipeline.post_processor = processors.TemplateProcessing(
            single=["<s>", "$A"], special_tokens=[("<s>", 0)]
        )
    table = (b"<s>", b"a", b" b", "€".encode()[:2])
    return Tokenizer(pipeline, Pieces(table=table, special=frozenset({0}), **pieces))


def golden_cases():
    with CASES.open(encoding="utf-8") as lines:
        return [pytest.param(case := json.loads(line), id=case["name"]) for line in lines]


@pytest.mark.model
@pytest.mark.parametrize("case", golden_cases())
def test_text_becomes_the_ids_of_the_reference(embedded_text, case):
    assert embedded_text.tokenizer.encode(case["text"]) == case["prompt_ids"]


@pytest.mark.model
@pytest.mark.parametrize("case", golden_cases())
def test_ids_become_the_reply_of_the_reference(embedded_text, case):
    tokenizer = embedded_text.tokenizer
    assert tokenizer.decode(case["greedy_ids"], keep_special=True) == case["reply"]


@pytest.mark.model
@pytest.mark.parametrize("case", [c for c in golden_cases() if "chat" in c.values[0]])
def test_a_chat_becomes_the_text_and_ids_of_the_reference(embedded_text, case):
    chat = tuple(
        ChatMessage(role=Role(message["role"]), content=message["content"])
        for message in case["chat"]
    )

    text = embedded_text.template.render(chat)

    assert text == case["text"]
    assert embedded_text.tokenizer.encode_rendered(text) == case["prompt_ids"]


@given(ids=st.lists(st.integers(0, 329), max_size=40))
def test_decoding_is_that_of_the_reference_pipeline(ids):
    expected = PIPELINE.decode(ids, skip_special_tokens=True)

    assert TRAINED.decode(ids) == expected


def test_bos_is_added_to_text_and_not_to_a_rendered_chat():
    tokenizer = letters()

    assert tokenizer.encode("ab") == [0, 1, 2]
    assert tokenizer.encode_rendered("<s>ab") == [0, 1, 2]
    assert tokenizer.encode_rendered("ab") == [1, 2]


def test_nothing_is_added_where_the_model_adds_nothing():
    assert letters(adds_bos=False).encode("ab") == [1, 2]
    assert letters(adds_bos=False).encode("") == []


def test_special_tokens_spelled_in_the_text_become_their_ids():
    assert letters(adds_bos=False).encode("a<s>b") == [1, 0, 2]


def test_special_tokens_are_shown_only_when_asked_for():
    tokenizer = letters()

    assert (tokenizer.decode([0, 1]), tokenizer.decode([0, 1], keep_special=True)) == ("a", "<s>a")
    assert [tokenizer.is_special(token_id) for token_id in (0, 1, 99)] == [True, False, False]


def test_ids_outside_the_table_decode_to_nothing():
    assert letters().decode([4, 1, -1, 10**9]) == "a"


def test_an_unfinished_character_decodes_to_one_replacement():
    assert letters().decode([1, 3]) == "a\ufffd"


def test_a_first_space_is_dropped_where_the_tokenizer_added_it():
    assert letters(strips_first_space=True).decode([2, 2]) == "b b"
    assert letters().decode([2, 2]) == " b b"


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(InvalidRequest, match="text: it holds half of a surrogate pair"):
        letters().encode("a\ud800")


@pytest.mark.parametrize("encode", ["encode", "encode_rendered"])
def test_a_text_on_which_the_pipeline_panics_is_refused_and_the_next_one_is_not(encode):
    tokenizer = letters(cut=pre_tokenizers.Split(Regex("(a+)+$"), "isolated"), adds_bos=False)

    with pytest.raises(InvalidRequest, match="text: the model's tokenizer gives up on it"):
        getattr(tokenizer, encode)("a" * 28 + "b")

    assert getattr(tokenizer, encode)("ab") == [1, 2]


def test_a_text_that_the_pipeline_has_no_token_for_is_refused():
    pipeline = Pipeline(models.WordLevel({"a": 0}, unk_token="<unk>"))
    tokenizer = Tokenizer(pipeline, Pieces(table=(b"a",), special=frozenset()))

    with pytest.raises(InvalidRequest, match="text: the model's tokenizer cannot encode it"):
        tokenizer.encode("b")


def test_the_size_is_one_more_than_the_largest_id():
    assert (letters().vocab_size, repr(letters())) == (4, "<Tokenizer 4 ids, 1 special>")


def test_the_longest_token_counts_bytes():
    empty = Tokenizer(Pipeline(models.BPE()), Pieces(table=(), special=frozenset()))

    assert (letters().longest_token_bytes, empty.longest_token_bytes) == (3, 1)


@given(text=st.text(alphabet="the cat가🌱 ", max_size=60))
def test_a_text_has_no_fewer_tokens_than_its_bytes_over_the_longest(text):
    ids = TRAINED.encode(text)

    assert len(ids) >= len(text.encode()) // TRAINED.longest_token_bytes


def _trained(pipeline):
    tokens = [pipeline.id_to_token(token_id) for token_id in range(pipeline.get_vocab_size())]
    table = tuple(byte_level_piece(token) for token in tokens)
    return Tokenizer(pipeline, Pieces(table=table, special=frozenset({0, 1, 2})))


PIPELINE = train_byte_level()
TRAINED = _trained(PIPELINE)
