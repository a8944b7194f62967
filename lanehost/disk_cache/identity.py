"""Whose state a file holds, as digests: of the model part, of each prefix, of token ids.

Everything that a state's bytes depend on is hashed by name, type, length and value, under a
version of this very form, so that no two identities are written alike. The key of a prefix is
chained: each hashes the one before it and the tokens of the next block; the first hashes the
layout and the scope. So a key stands for scope, model and every token, not for a length; where
images are, their digests stand in the place of tokens (`lanehost.image_ids`).

Laws: two identities that differ in anything have different digests, whatever moves from one
field into the next; another version of this form agrees with nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack
from typing import Self

from blake3 import blake3

from lanehost.image_ids import has_images, pack_ids

# Of what is hashed and how, and of the numerics that states were computed with: raise it when
# either changes, and every older file is a miss.
IDENTITY_VERSION = 1


class _Identity:
    """Hashes fields, each with its name, type and length."""

    def __init__(self, form: str) -> None:
        self._hash = blake3()
        self.number("identity", IDENTITY_VERSION).text("form", form)

    def text(self, name: str, value: str) -> Self:
        return self.raw(name, value.encode(), kind=b"s")

    def number(self, name: str, value: int) -> Self:
        return self.raw(name, pack("<Q", value), kind=b"n")

    def tokens(self, name: str, token_ids: Sequence[int]) -> Self:
        kind = b"i" if has_images(token_ids) else b"t"
        return self.raw(name, pack_ids(token_ids), kind=kind)

    def raw(self, name: str, value: bytes, *, kind: bytes = b"b") -> Self:
        for part in (name.encode(), kind, value):
            self._hash.update(pack("<Q", len(part)))
            self._hash.update(part)
        return self

    def digest(self) -> bytes:
        return self._hash.digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelIdentity:
    """All of the model that a state's bytes depend on, and how they lie.

    Attributes:
        weights_digest: Of the weights.
        config_digest: Of the model's own numbers: family, heads, layers, constants.
        text_digest: Of the tokenizer.
        weights: What weights are held as.
        dtype: What is computed in.
        device: On what.
        kv_layout: What keys and values are on each rank, and what computed them.
        world_size: Over how many ranks the state is cut.
        block_size: Positions in a block.
        build: Of the program: another one may compute other bits.
    """

    weights_digest: str
    config_digest: str
    text_digest: str
    weights: str
    dtype: str
    device: str
    kv_layout: str
    world_size: int
    block_size: int
    build: str

    @property
    def layout(self) -> str:
        """The layout fingerprint, 64 hex digits: states of one layout lie in one folder."""
        identity = _Identity("layout")
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, int):
                identity.number(name, value)
            else:
                identity.text(name, value)
        return identity.digest().hex()


def scope_digest(scope: str) -> str:
    """Return what stands for a scope on disk, 64 hex digits: its name is not written."""
    return _Identity("scope").text("scope", scope).digest().hex()


def tokens_digest(token_ids: Sequence[int]) -> str:
    """Return the digest of identity ids alone, 64 hex digits."""
    return _Identity("tokens").tokens("tokens", token_ids).digest().hex()


def prefix_keys(
    layout: str, owner: str, token_ids: Sequence[int], *, block_size: int
) -> tuple[str, ...]:
    """Return the key of the prefix that ends with each whole block, 64 hex digits each.

    Args:
        layout: The layout fingerprint.
        owner: `scope_digest` of whose the tokens are.
        token_ids: The prompt; what is behind its last whole block has no key.
        block_size: Positions in a block.
    """
    identity = _Identity("prefix").text("layout", layout).text("owner", owner)
    key = identity.number("block_size", block_size).digest()
    keys: list[str] = []
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        block = token_ids[start : start + block_size]
        if has_images(block):
            key = _Identity("images").raw("before", key).tokens("block", block).digest()
        else:
            # Both parts have one length each, which the first key has in it.
            key = blake3(key + pack_ids(block)).digest()
        keys.append(key.hex())
    return tuple(keys)
