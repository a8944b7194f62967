"""Text to token ids by a pipeline of `tokenizers`; ids to text by the bytes of each id.

Decoding is ours so that a stream and a whole reply give the same text by construction.
It differs from the pipeline's own decoder only where a SentencePiece reply holds bytes
that are no UTF-8: there the characters around them are kept. Encoding costs time linear
in the text for text that has words; a run without any break costs n log n.
"""

from collections.abc import Iterable
from hashlib import blake2b

import tokenizers

from lanehost.errors import InvalidRequest
from lanehost.text.detokenizer import Detokenizer
from lanehost.text.panics import panics_as
from lanehost.text.pieces import Pieces


class Tokenizer:
    """A model's tokenizer; encoding and decoding change nothing in it."""

    __slots__ = ("_pieces", "_pipeline")

    def __init__(self, pipeline: tokenizers.Tokenizer, pieces: Pieces) -> None:
        """Take a pipeline whose post-processor adds bos and eos as the model wants them."""
        self._pipeline = pipeline
        self._pieces = pieces

    def __repr__(self) -> str:
        """Show the size of the vocabulary."""
        return f"<Tokenizer {self.vocab_size} ids, {len(self._pieces.special)} special>"

    @property
    def vocab_size(self) -> int:
        """One more than the largest id that the tokenizer knows."""
        return len(self._pieces.table)

    @property
    def longest_token_bytes(self) -> int:
        """Bytes of the longest token, at least 1: a text's bytes over this are its fewest tokens.

        Exact but for bytes that the tokenizer drops or composes before it cuts the text.
        """
        return max(1, max(map(len, self._pieces.table), default=1))

    @property
    def digest(self) -> str:
        """Tell what ids stand for, in short: another tokenizer makes other texts of them."""
        whole = blake2b(digest_size=16)
        for token_id, piece in enumerate(self._pieces.table):
            skipped = token_id in self._pieces.special
            whole.update(b"%d %d " % (len(piece), skipped) + piece)
        whole.update(b"strips" if self._pieces.strips_first_space else b"")
        return whole.hexdigest()

    def encode(self, text: str) -> list[int]:
        """Encode text; bos and eos are added where the model's tokenizer adds them.

        Special tokens that the text spells out become their ids.

        Raises:
            InvalidRequest: the text is not Unicode text, or the pipeline fails on it; field `text`.
        """
        return self._encode(text, adds_special=True)

    def encode_rendered(self, text: str) -> list[int]:
        """Encode a rendered chat: nothing is added, for its template wrote all it wants.

        Raises:
            InvalidRequest: the text is not Unicode text, or the pipeline fails on it; field `text`.
        """
        return self._encode(text, adds_special=False)

    def decode(self, ids: Iterable[int], *, keep_special: bool = False) -> str:
        """Decode ids; one that the tokenizer does not know gives no text."""
        table = self._pieces.table
        skipped = self._skipped(keep_special=keep_special)
        shown = (i for i in ids if i not in skipped and 0 <= i < len(table))
        text = b"".join(table[token_id] for token_id in shown).decode(errors="replace")
        return text.removeprefix(" ") if self._pieces.strips_first_space else text

    def is_special(self, token_id: int) -> bool:
        """Tell whether the id is a control token, which replies do not show."""
        return token_id in self._pieces.special

    def new_detokenizer(self, *, keep_special: bool = False) -> Detokenizer:
        """Start a reply whose text comes token by token."""
        return Detokenizer(
            self._pieces.table,
            skipped=self._skipped(keep_special=keep_special),
            strips_first_space=self._pieces.strips_first_space,
        )

    def _skipped(self, *, keep_special: bool) -> frozenset[int]:
        return frozenset() if keep_special else self._pieces.special

    def _encode(self, text: str, *, adds_special: bool) -> list[int]:
        try:
            # Its regular expressions give up on some texts, by a panic.
            with panics_as(InvalidRequest("text", "the model's tokenizer gives up on it")):
                # As a batch of one: only a batch lets other threads run meanwhile.
                batch = self._pipeline.encode_batch([text], add_special_tokens=adds_special)
        except TypeError as err:  # how the pipeline answers half a surrogate pair
            raise InvalidRequest("text", "it holds half of a surrogate pair") from err
        except InvalidRequest:
            raise
        except Exception as err:  # the pipeline's errors have no class of their own
            raise InvalidRequest("text", "the model's tokenizer cannot encode it") from err
        return batch[0].ids
