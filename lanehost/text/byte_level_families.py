"""What the family words of GGUF files (`tokenizer.ggml.pre`) stand for.

Each as the `tokenizer.json` of that family has it. A word that is not in the table is
refused by its reader: guessing would change the ids.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tokenizers import Regex, pre_tokenizers

_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_WORDS = _LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")
_TEKKEN_WORDS = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteLevelFamily:
    """How a family cuts text into words before its merges; None is GPT-2's own way."""

    words: str | None = None
    cuts_digits: bool = False
    composes: bool = False
    whole_words_first: bool = False
    adds_bos: bool = False

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        """Build the step that cuts text into words of byte characters."""
        if self.words is not None:
            cut = pre_tokenizers.Split(Regex(self.words), behavior="isolated")
            to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            return pre_tokenizers.Sequence([cut, to_bytes])
        gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        if self.cuts_digits:
            return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
        return gpt2


_GPT2 = ByteLevelFamily()
_STARCODER = ByteLevelFamily(cuts_digits=True)
_LLAMA3 = ByteLevelFamily(words=_LLAMA3_WORDS, whole_words_first=True, adds_bos=True)
_QWEN2 = ByteLevelFamily(words=_QWEN2_WORDS, composes=True)
_TEKKEN = ByteLevelFamily(words=_TEKKEN_WORDS, whole_words_first=True, adds_bos=True)

BYTE_LEVEL_FAMILIES: Mapping[str, ByteLevelFamily] = MappingProxyType(
    {
        "gpt-2": _GPT2,
        "smollm": _STARCODER,
        "starcoder": _STARCODER,
        "refact": _STARCODER,
        "llama3": _LLAMA3,
        "llama-v3": _LLAMA3,
        "llama-bpe": _LLAMA3,
        "qwen2": _QWEN2,
        "deepseek-r1-qwen": _QWEN2,
        "tekken": _TEKKEN,
    }
)
