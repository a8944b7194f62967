"""The laws of lanehost.text.hf_tokenizer, against `transformers` on the same folder."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, processors
from tokenizers import Tokenizer as Pipeline
from transformers import PreTrainedTokenizerFast

from lanehost.errors import StartupFailed
from lanehost.text.hf_folder import HfFolder
from lanehost.text.hf_tokenizer import special_token, tokenizer_from_folder
from tests.support.text_models import SPM_SCORES, train_byte_level, write_folder

relaxed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
EOS_AND_BOS = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}


def load(path):
    return tokenizer_from_folder(HfFolder(path))


def reference(path):
    return PreTrainedTokenizerFast.from_pretrained(path)


def sentencepiece_pipeline(*, strips=True):
    """A pipeline as the tokenizer.json of the Llama 2 family has it."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *SPM_SCORES]
    merges = [("h", "e"), ("l", "l"), ("▁", "t"), ("he", "ll"), ("hell", "o"), ("▁", "hello")]
    merges = [pair for pair in merges if "".join(pair) in SPM_SCORES]
    bpe = models.BPE(
        {token: token_id for token_id, token in enumerate(tokens)},
        merges,
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    pipeline = Pipeline(bpe)
    pipeline.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    strip = [decoders.Strip(" ", 1, 0)] if strips else []
    pipeline.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    pipeline.add_special_tokens(["<unk>", "<s>", "</s>"])
    return pipeline


@pytest.fixture(scope="module")
def byte_level_folder(tmp_path_factory):
    pipeline = train_byte_level()
    pipeline.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    return write_folder(tmp_path_factory.mktemp("byte_level"), pipeline)


@pytest.fixture(scope="module")
def both(byte_level_folder):
    return load(byte_level_folder), reference(byte_level_folder)


@pytest.fixture(scope="module")
def both_spm(tmp_path_factory):
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"}
    path = write_folder(
        tmp_path_factory.mktemp("spm"), sentencepiece_pipeline(), tokenizer_config_json=config
    )
    return load(path), reference(path)


@given(text=st.text(alphabet="the cat<>|\n9가🌱é", max_size=30))
@relaxed
def test_byte_level_text_is_encoded_as_the_reference_does(both, text):
    ours, theirs = both
    text = f"{text}<|im_end|><think>{text}"

    assert ours.encode(text) == theirs.encode(text)
    assert ours.encode_rendered(text) == theirs.encode(text, add_special_tokens=False)


@given(ids=st.lists(st.integers(0, 330), max_size=40))
@relaxed
def test_byte_level_ids_are_decoded_as_the_reference_does(both, ids):
    ours, theirs = both

    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    assert ours.decode(ids, keep_special=True) == theirs.decode(ids)


@given(text=st.text(alphabet="hello t\n가나🌱é", max_size=30))
@relaxed
def test_sentencepiece_text_goes_and_comes_as_the_reference_does(both_spm, text):
    ours, theirs = both_spm
    ids = theirs.encode(text)

    assert ours.encode(text) == ids
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_sentencepiece_without_a_strip_keeps_its_first_space(tmp_path):
    tokenizer = load(write_folder(tmp_path, sentencepiece_pipeline(strips=False)))

    assert tokenizer.decode(tokenizer.encode("hello")) == " hello"


def test_characters_beside_bytes_that_are_no_text_are_kept(both_spm):
    ours, _ = both_spm
    euro_and_a_half = [3 + byte for byte in "€".encode() + b"\xe2"]

    assert ours.decode(euro_and_a_half) == "€\ufffd"


@pytest.mark.parametrize("stated", [{}, {"add_bos_token": True}, {"add_bos_token": False}])
@pytest.mark.parametrize("adds_bos", [True, False])
def test_tokenizer_json_alone_says_what_is_added(tmp_path, adds_bos, stated):
    pipeline = train_byte_level()
    if adds_bos:
        pipeline.post_processor = processors.TemplateProcessing(
            single=["<|im_start|>", "$A"], special_tokens=[("<|im_start|>", 1)]
        )
    path = write_folder(tmp_path, pipeline, tokenizer_config_json={**EOS_AND_BOS, **stated})

    ids = load(path).encode("the cat")

    assert ids == reference(path).encode("the cat")
    assert (ids[0] == 1) is adds_bos


def test_a_named_token_is_special_even_where_tokenizer_json_does_not_say_so(tmp_path):
    pipeline = train_byte_level()
    path = write_folder(
        tmp_path, pipeline, tokenizer_config_json={**EOS_AND_BOS, "pad_token": "the"}
    )
    the = pipeline.token_to_id("the")

    assert load(path).is_special(the)
    assert load(path).decode([the]) == reference(path).decode([the], skip_special_tokens=True) == ""


def test_a_named_token_that_is_no_token_adds_no_id(tmp_path):
    path = write_folder(tmp_path, tokenizer_config_json={**EOS_AND_BOS, "pad_token": "<pad>"})

    assert load(path).vocab_size == train_byte_level().get_vocab_size()


def test_texts_are_never_cut_or_filled_up(tmp_path):
    pipeline = train_byte_level()
    expected = pipeline.encode("the cat sat on the mat").ids
    pipeline.enable_truncation(3)
    cut = load(write_folder(tmp_path / "cut", pipeline))
    pipeline.no_truncation()
    pipeline.enable_padding(length=40)
    filled = load(write_folder(tmp_path / "filled", pipeline))

    assert len(expected) > 3
    assert cut.encode("the cat sat on the mat") == expected
    assert filled.encode("the cat sat on the mat") == expected


def test_an_added_token_stands_for_its_own_text(tmp_path):
    pipeline = train_byte_level()
    pipeline.add_tokens(["<caf\u00e9>"])
    tokenizer = load(write_folder(tmp_path, pipeline))

    assert tokenizer.decode(tokenizer.encode("<caf\u00e9>")) == "<caf\u00e9>"


def test_named_tokens_may_stand_in_special_tokens_map(tmp_path):
    path = write_folder(
        tmp_path, tokenizer_config_json={}, special_tokens_map_json={"bos_token": "<|im_start|>"}
    )

    assert special_token(HfFolder(path), "bos") == "<|im_start|>"
    assert special_token(HfFolder(path), "eos") is None


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"tokenizer_json": None}, r"tokenizer\.json is absent"),
        ({"tokenizer_json": "{}"}, r"tokenizer\.json cannot be read"),
        (
            {"tokenizer_config_json": {"bos_token": 3}},
            r"tokenizer_config\.json: field bos_token is 3, not a text",
        ),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, files, says):
    with pytest.raises(StartupFailed, match=says):
        load(write_folder(tmp_path, **files))


@pytest.mark.parametrize("decoder", [None, decoders.WordPiece(), decoders.Metaspace()])
def test_an_unsupported_decoder_is_refused_by_name(tmp_path, decoder):
    pipeline = train_byte_level()
    tokenizer = json.loads(pipeline.to_str())
    tokenizer["decoder"] = decoder and json.loads(decoder.__getstate__())

    with pytest.raises(StartupFailed, match=r"tokenizer\.json: field decoder is .* supported"):
        load(write_folder(tmp_path, tokenizer_json=tokenizer))


def test_an_id_far_beyond_the_number_of_tokens_is_refused(tmp_path):
    fields = json.loads(train_byte_level().to_str())
    fields["model"]["vocab"]["zz"] = 400_000_000
    path = write_folder(tmp_path, tokenizer_json=fields)

    limit = len(train_byte_level().get_vocab()) + 1 + 65_536
    with pytest.raises(StartupFailed, match=f"token 'zz' has id 400000000, the limit is {limit}"):
        load(path)
