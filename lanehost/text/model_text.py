"""Load a model's tokenizer, chat template and limits from its files."""

from dataclasses import dataclass
from pathlib import Path

from lanehost.text.chat_template import ChatTemplate
from lanehost.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelText:
    """What the master knows of a model: its text side and its limits.

    `template` is None when the model has none, or none that compiles;
    `no_template_reason` then says which, and is "" otherwise.
    """

    name: str
    tokenizer: Tokenizer
    template: ChatTemplate | None
    no_template_reason: str
    eos_token_ids: frozenset[int]
    context_length: int
    vocab_size: int


def load_model_text(model_path: Path) -> ModelText:
    """Load from a GGUF file or a Hugging Face folder.

    Raises:
        StartupFailed: a file or field is missing or wrong; names it and says what to do.
    """
    raise NotImplementedError
