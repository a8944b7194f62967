"""The laws of lanehost.text.byte_level_families."""

import pytest
from tokenizers import Tokenizer as Pipeline
from tokenizers import models

from lanehost.text.byte_level_families import BYTE_LEVEL_FAMILIES


def words(family, text):
    """The words that a family cuts the text into, spaces shown as Ġ."""
    pipeline = Pipeline(models.BPE())
    pipeline.pre_tokenizer = BYTE_LEVEL_FAMILIES[family].pre_tokenizer()
    return [word for word, _ in pipeline.pre_tokenizer.pre_tokenize_str(text)]


def test_the_patterns_are_those_of_the_reference():
    from transformers.integrations.gguf.gguf_tokenizer_mapping import (  # noqa: PLC0415 slow import
        GGUF_PRE_TOKENIZER_SPLITS,
    )

    with_pattern = {name: f.words for name, f in BYTE_LEVEL_FAMILIES.items() if f.words}

    assert with_pattern
    assert with_pattern == {name: GGUF_PRE_TOKENIZER_SPLITS[name] for name in with_pattern}


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("gpt-2", ["a", "Ġ1234", "'s"]),
        ("smollm", ["a", "Ġ", "1", "2", "3", "4", "'s"]),
        ("llama-bpe", ["a", "Ġ", "123", "4", "'s"]),
        ("qwen2", ["a", "Ġ", "1", "2", "3", "4", "'s"]),
        ("tekken", ["a", "Ġ", "1", "2", "3", "4", "'s"]),
    ],
)
def test_each_family_cuts_numbers_its_own_way(family, expected):
    assert words(family, "a 1234's") == expected


@pytest.mark.parametrize("family", sorted(BYTE_LEVEL_FAMILIES))
def test_no_family_adds_a_space_or_loses_a_byte(family):
    assert "".join(words(family, "x  y\r\n\n z9 ")) == "xĠĠyčĊĊĠz9Ġ"
