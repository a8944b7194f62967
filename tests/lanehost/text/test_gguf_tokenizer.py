"""The laws of lanehost.text.gguf_tokenizer; a plain SentencePiece is the oracle of the scores."""

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from lanehost.errors import StartupFailed
from lanehost.text.byte_level_families import BYTE_LEVEL_FAMILIES
from lanehost.text.gguf_fields import GgufFields
from lanehost.text.gguf_tokenizer import tokenizer_from_gguf
from tests.support.text_models import (
    SPM_SCORES,
    byte_level_fields,
    spm_fields,
    train_byte_level,
    write_gguf,
)

relaxed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """Build a tokenizer from fields."""
    folder = tmp_path_factory.mktemp("gguf")

    def build_tokenizer(fields):
        return tokenizer_from_gguf(GgufFields(write_gguf(folder / "m.gguf", fields)))

    return build_tokenizer


@pytest.fixture(scope="session")
def spm(build):
    return build(spm_fields(add_bos_token=False))


@pytest.fixture(scope="session")
def smollm(build):
    return build(byte_level_fields(pre="smollm"))


@pytest.fixture(scope="session")
def trained():
    """The pipeline that the fields of `smollm` were read from."""
    pipeline = train_byte_level()
    pipeline.pre_tokenizer = BYTE_LEVEL_FAMILIES["smollm"].pre_tokenizer()
    return pipeline


def plain_sentencepiece(text):
    """Merge the two neighbours whose union scores best, the leftmost first, until none has one."""
    pieces = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        unions = [
            (SPM_SCORES[left + right], -place)
            for place, (left, right) in enumerate(pairwise(pieces))
            if left + right in SPM_SCORES
        ]
        if not unions:
            return pieces
        place = -max(unions)[1]
        pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]


def spelled(tokenizer, pieces):
    """The ids of pieces; one that is no token is spelled in bytes."""
    tokens = spm_fields()["tokenizer.ggml.tokens"]
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    return [
        token_id
        for piece in pieces
        for token_id in (
            [ids[piece]] if piece in ids else [ids[f"<0x{b:02X}>"] for b in piece.encode()]
        )
    ]


@given(text=st.text(alphabet="hello t가나🌱\nx€", max_size=30))
@relaxed
def test_sentencepiece_merges_follow_the_scores(spm, text):
    assert spm.encode(text) == spelled(spm, plain_sentencepiece(text))


@given(text=st.text(alphabet="hello t가나🌱\nx€", max_size=30))
@relaxed
def test_sentencepiece_text_comes_back(spm, text):
    assert spm.decode(spm.encode(text)) == text


def test_sentencepiece_adds_bos_unless_the_file_says_no(build, spm):
    assert build(spm_fields()).encode("hello") == [1, *spm.encode("hello")]
    assert build(spm_fields(add_eos_token=True)).encode("hello") == [1, *spm.encode("hello"), 2]


def test_no_space_is_added_or_dropped_where_the_file_says_so(build, spm):
    plain = build(spm_fields(add_space_prefix=False, add_bos_token=False))

    assert plain.decode(plain.encode("hello")) == "hello"
    assert plain.decode(spm.encode("hello")) == " hello"


def test_only_control_and_unknown_tokens_are_special(build):
    tokenizer = build(spm_fields(add_bos_token=False))
    tool = spm_fields()["tokenizer.ggml.tokens"].index("<tool>")

    assert tool in tokenizer.encode("hello<tool>")
    assert tokenizer.decode([0, 1, 2, tool]) == "<tool>"
    assert tokenizer.decode([1, tool], keep_special=True) == "<s><tool>"


@given(text=st.text(alphabet="the cat sat.9가🌱\n ", max_size=30))
@relaxed
def test_byte_level_ids_are_those_of_the_trained_pipeline(smollm, trained, text):
    assert smollm.encode(text) == trained.encode(text).ids


def test_a_family_adds_bos_as_it_is_known_to_unless_the_file_says_otherwise(build):
    smollm, llama = byte_level_fields(), byte_level_fields(pre="llama-bpe")

    assert build(smollm).encode("the")[0] != 1
    assert build(llama).encode("the")[0] == 1
    assert build(llama | {"tokenizer.ggml.add_bos_token": False}).encode("the")[0] != 1
    assert build(smollm | {"tokenizer.ggml.add_bos_token": True}).encode("the")[0] == 1


def test_qwen_text_is_composed_before_it_is_cut(build):
    qwen = build(byte_level_fields(pre="qwen2"))

    assert qwen.decode(qwen.encode("e\u0301")) == "\u00e9"


def test_llama3_takes_a_whole_word_that_is_a_token_without_merging(build):
    fields = byte_level_fields(pre="llama-bpe", add_bos_token=False)
    tokens = [*fields["tokenizer.ggml.tokens"], "zqz"]
    types = [*fields["tokenizer.ggml.token_type"], 1]
    fields |= {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}

    assert build(fields).encode("zqz") == [len(tokens) - 1]
    assert len(build(fields | {"tokenizer.ggml.pre": "smollm"}).encode("zqz")) == 3


def test_unused_tokens_stand_for_nothing_and_user_defined_ones_for_their_own_text(build):
    fields = byte_level_fields(pre="llama-bpe")
    tokens = [*fields["tokenizer.ggml.tokens"], "PAD", "<caf\u00e9 \uff5c>"]
    types = [*fields["tokenizer.ggml.token_type"], 5, 4]
    tokenizer = build(
        fields | {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    )
    pad, added = len(tokens) - 2, len(tokens) - 1

    assert tokenizer.decode([pad, added]) == "<caf\u00e9 \uff5c>"
    assert tokenizer.encode_rendered("<caf\u00e9 \uff5c>") == [added]
    assert pad not in tokenizer.encode("PAD")


def test_all_bytes_of_the_alphabet_are_known(build):
    tokenizer = build(byte_level_fields())

    assert len(pre_tokenizers.ByteLevel.alphabet()) == 256
    assert tokenizer.decode(tokenizer.encode("\x04\x06\U00040000")) == "\x04\x06\U00040000"


def with_long_token(length):
    fields = spm_fields()
    fields["tokenizer.ggml.tokens"][-2] = "x" * length
    return fields


def with_unused_bos():
    fields = byte_level_fields(add_bos_token=True, bos_token_id=2)
    fields["tokenizer.ggml.token_type"][2] = 5
    return fields


def test_a_long_token_is_taken(build):
    assert build(with_long_token(1_024)).encode("hello")


@pytest.mark.parametrize("bos", ["$A", "$B:3", ":", "a:b:c", "[:1", "\x00"])
def test_a_mark_of_a_text_may_be_spelled_in_any_way(build, bos):
    fields = byte_level_fields(add_bos_token=True)
    fields["tokenizer.ggml.tokens"][1] = bos
    assert build(fields).encode("the")[0] == 1


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (byte_level_fields(model="rwkv"), "tokenizer.ggml.model is 'rwkv', supported are 'gpt2'"),
        (byte_level_fields(model=None), "field tokenizer.ggml.model is absent"),
        (byte_level_fields(pre="viking"), "tokenizer.ggml.pre is 'viking', supported are deepseek"),
        (byte_level_fields(pre=None), "tokenizer.ggml.pre is None"),
        (byte_level_fields(tokens=["a"]), "token_type has .* entries for 1 tokens"),
        (byte_level_fields(tokens=["a"], token_type=[77]), "token_type: 77 is not a valid"),
        (byte_level_fields(merges=["zz q"]), "merges: entry 0, 'zz q', has a token"),
        (byte_level_fields(merges=["h"]), "merges: entry 0, 'h', has a token"),
        (
            byte_level_fields(add_bos_token=True, bos_token_id=999),
            "token id 999 is outside the vocabulary",
        ),
        (
            byte_level_fields(add_bos_token=True, bos_token_id=None),
            "field tokenizer.ggml.bos_token_id is absent",
        ),
        (spm_fields(scores=[0.5]), "scores has 1 entries for"),
        (spm_fields(scores=None), "field tokenizer.ggml.scores is absent"),
        (spm_fields(unknown_token_id=4000), "token id 4000 is outside"),
        (
            with_unused_bos(),
            "token id 2, '<.im_end.>', is unused and cannot be bos",
        ),
        (with_long_token(1_025), "tokens: 'xxxx.* has 1025 characters, the limit is 1024"),
    ],
)
def test_what_cannot_be_built_faithfully_is_refused_by_name(build, fields, says):
    with pytest.raises(StartupFailed, match=says):
        build(fields)
