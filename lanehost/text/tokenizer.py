"""Text to token ids and back."""

from collections.abc import Iterable

from lanehost.text.detokenizer import Detokenizer


class Tokenizer:
    """A model's tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Ids that the tokenizer knows."""
        raise NotImplementedError

    def encode(self, text: str) -> list[int]:
        """Encode text; adds bos and eos as the model's own tokenizer does."""
        raise NotImplementedError

    def encode_rendered(self, text: str) -> list[int]:
        """Encode a rendered chat; nothing is added."""
        raise NotImplementedError

    def decode(self, ids: Iterable[int], *, keep_special: bool = False) -> str:
        """Decode ids; an id that the tokenizer does not know gives no text."""
        raise NotImplementedError

    def is_special(self, token_id: int) -> bool:
        """Tell whether the id is a control token."""
        raise NotImplementedError

    def new_detokenizer(self, *, keep_special: bool = False) -> Detokenizer:
        """Start a reply."""
        raise NotImplementedError
