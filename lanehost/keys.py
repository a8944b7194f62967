"""Who asks: from the key that came with a call to the scope that it opens; pure.

A scope is whose prompts may be shared and whose share of the server is taken (ADR 12).
Laws: a key is kept nowhere, only its SHA-256 digest is; it opens the scope that its digest
is stored for, and no other; what a look-up compares does not depend on the key, so its time
says nothing of how near a wrong one was.

Digests without salt are enough for keys that nobody can guess, such as those of `lanehost
new-key`; a word that a person chose is no key.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lanehost.errors import Unauthenticated

MAX_KEY_CHARACTERS = 512
_KEY = re.compile(rf"[!-~]{{1,{MAX_KEY_CHARACTERS}}}")
_BEARER = re.compile(rf"bearer +({_KEY.pattern})", re.IGNORECASE)
_REFUSAL = "this server wants a key that it knows, as authorization: Bearer KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A name, the digests of the keys that open it, and its weight against other scopes."""

    name: str
    key_digests: tuple[bytes, ...] = field(repr=False)
    weight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRing:
    """All scopes, and which key opens which."""

    scopes: tuple[Scope, ...]

    @property
    def weights(self) -> Mapping[str, int]:
        """The weight of every scope, by name."""
        return {scope.name: scope.weight for scope in self.scopes}

    def scope_of(self, key: str | None) -> str:
        """Return the name of the scope that a key opens.

        Raises:
            Unauthenticated: there is no key, or no scope has it; said in the same words.
        """
        digest = digest_of(key or "")
        found = None
        for scope in self.scopes:
            for known in scope.key_digests:
                # All of them, also behind the one that was found.
                if hmac.compare_digest(known, digest):
                    found = scope.name
        if not key or found is None:
            raise Unauthenticated(_REFUSAL)
        return found


def digest_of(key: str) -> bytes:
    """Return what is stored of a key."""
    return hashlib.sha256(key.encode()).digest()


def is_key(text: str) -> bool:
    """Say whether a text can be a key: 1 to 512 visible characters of ASCII.

    >>> is_key("Zm9v-_"), is_key("two words"), is_key("")
    (True, False, False)
    """
    return _KEY.fullmatch(text) is not None


def bearer_key(headers: Sequence[str]) -> str | None:
    """Return the key of a call's `authorization` headers; None when there is not just one.

    A header of another form, or with a longer key than any can be, is no key either.

    >>> bearer_key(["Bearer k1"]), bearer_key(["Bearer k1", "Bearer k2"]), bearer_key(["Basic x"])
    ('k1', None, None)
    """
    if len(headers) != 1:
        return None
    match = _BEARER.fullmatch(headers[0])
    return None if match is None else match[1]
