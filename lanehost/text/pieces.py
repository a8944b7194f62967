r"""What each token id stands for in bytes, whatever the family of the tokenizer.

A byte-level token spells its bytes with one printable character each; a SentencePiece
token spells text with a mark for the space, or one byte as `<0x0A>`. An added token
stands for its own text.

>>> byte_level_piece("Ġeuro"), sentencepiece_piece("▁euro"), sentencepiece_piece("<0xE2>")
(b' euro', b' euro', b'\xe2')
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

SPACE_MARK = "▁"

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The bytes of every id; an id without a token has none."""

    table: tuple[bytes, ...]
    special: frozenset[int]
    strips_first_space: bool = False


def byte_level_piece(token: str) -> bytes:
    """Give the bytes of a byte-level token; one with another character is plain text."""
    try:
        return bytes(_BYTE_OF_CHARACTER[character] for character in token)
    except KeyError:
        return token.encode()


def sentencepiece_piece(token: str) -> bytes:
    """Give the bytes of a SentencePiece token."""
    byte = _BYTE_TOKEN.fullmatch(token)
    return bytes.fromhex(byte[1]) if byte else token.replace(SPACE_MARK, " ").encode()


def _byte_alphabet() -> dict[str, int]:
    """Map characters to bytes: printable bytes are themselves, the others count up from 256."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + index): byte for index, byte in enumerate(others)
    }


_BYTE_OF_CHARACTER: Mapping[str, int] = MappingProxyType(_byte_alphabet())
