"""Turn token ids into text as they come, whole characters only.

Laws: all pushes and the flush together are what a full decode of the same ids
gives, byte for byte; no push ends in half a character; a push costs the same
however long the reply is.

Every id stands for bytes, whatever the family of the tokenizer: text is the UTF-8
of those bytes, and a run of bytes that is no UTF-8 gives U+FFFD for each of its
longest well-begun parts, as Python and Rust both do it.

>>> euro = Detokenizer((b"a", "€".encode()[:1], "€".encode()[1:]), skipped=frozenset())
>>> [euro.push(token_id) for token_id in (0, 1, 2, 1)], euro.flush()
(['a', '', '€', ''], '\ufffd')
"""

from codecs import getincrementaldecoder
from collections.abc import Set as AbstractSet

_new_utf8_decoder = getincrementaldecoder("utf-8")


class Detokenizer:
    """The text of one reply, as it grows."""

    __slots__ = ("_at_start", "_pieces", "_skipped", "_strips_first_space", "_utf8")

    def __init__(
        self,
        pieces: tuple[bytes, ...],
        *,
        skipped: AbstractSet[int],
        strips_first_space: bool = False,
    ) -> None:
        """Start before the first token.

        Args:
            pieces: the bytes of each id; an id past them gives no text.
            skipped: ids that give no text.
            strips_first_space: drop a space that the text begins with (SentencePiece).
        """
        self._pieces = pieces
        self._skipped = skipped
        self._strips_first_space = strips_first_space
        self._utf8 = _new_utf8_decoder("replace")
        self._at_start = True

    def push(self, token_id: int) -> str:
        """Add a token and give the characters that it completes."""
        if token_id in self._skipped or not 0 <= token_id < len(self._pieces):
            return ""
        return self._after_first_space(self._utf8.decode(self._pieces[token_id]))

    def flush(self) -> str:
        """End the text: U+FFFD if it ends inside a character, else nothing."""
        return self._after_first_space(self._utf8.decode(b"", final=True))

    def _after_first_space(self, text: str) -> str:
        if not self._at_start or not text:
            return text
        self._at_start = False
        return text.removeprefix(" ") if self._strips_first_space else text
