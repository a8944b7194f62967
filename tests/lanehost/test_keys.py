import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.errors import Unauthenticated
from lanehost.keys import KeyRing, Scope, bearer_key, digest_of, is_key

keys = st.text(st.characters(codec="ascii", min_codepoint=33, max_codepoint=126), min_size=1)
owners = st.dictionaries(keys, st.sampled_from(["a", "b", "c"]), min_size=1, max_size=6)


def ring_of(owner_of: dict[str, str]) -> KeyRing:
    names = sorted(set(owner_of.values()))
    return KeyRing(
        scopes=tuple(
            Scope(
                name=name,
                key_digests=tuple(digest_of(key) for key, one in owner_of.items() if one == name),
                weight=index + 1,
            )
            for index, name in enumerate(names)
        )
    )


@given(owners, keys)
def test_a_stored_key_opens_its_scope_and_nothing_else_opens_any(owner_of, other) -> None:
    ring = ring_of(owner_of)
    assert {key: ring.scope_of(key) for key in owner_of} == owner_of
    if other not in owner_of:
        with pytest.raises(Unauthenticated):
            ring.scope_of(other)


def test_no_key_and_a_wrong_one_are_refused_in_the_same_words() -> None:
    ring = ring_of({"secret": "a"})
    said = set()
    for key in (None, "", "other", "secret ", "Secret", digest_of("secret").hex()):
        with pytest.raises(Unauthenticated) as caught:
            ring.scope_of(key)
        said.add(str(caught.value))
    assert said == {"this server wants a key that it knows, as authorization: Bearer KEY"}


@pytest.mark.parametrize("key", [None, ""])
def test_nothing_is_no_key_whatever_digest_is_stored(key) -> None:
    with pytest.raises(Unauthenticated):
        ring_of({"": "a"}).scope_of(key)


def test_a_key_is_stored_as_its_sha_256() -> None:
    assert digest_of("abc") == hashlib.sha256(b"abc").digest()


def test_every_digest_is_compared_whatever_the_key() -> None:
    seen = []

    class Digests(tuple):
        __slots__ = ()

        def __iter__(self):
            for digest in super().__iter__():
                seen.append(digest)
                yield digest

    scopes = tuple(
        Scope(name=name, key_digests=Digests(digest_of(f"{name}{n}") for n in range(3)))
        for name in ("a", "b")
    )
    assert KeyRing(scopes=scopes).scope_of("a0") == "a"
    assert len(seen) == 6


def test_neither_keys_nor_digests_are_shown() -> None:
    shown = repr(ring_of({"secret": "a"}))
    assert "secret" not in shown
    assert repr(digest_of("secret"))[2:10] not in shown
    assert "name='a'" in shown


def test_weights_are_by_name() -> None:
    assert ring_of({"x": "a", "y": "b"}).weights == {"a": 1, "b": 2}


@given(st.text(max_size=20))
def test_only_visible_ascii_is_a_key(text: str) -> None:
    assert is_key(text) == (
        text.isascii() and text.isprintable() and " " not in text and text != ""
    )


@given(keys)
def test_a_bearer_header_gives_its_key(key: str) -> None:
    assert bearer_key([f"Bearer {key}"]) == key
    assert bearer_key([f"bearer  {key}"]) == key


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [""],
        ["Bearer"],
        ["Bearer "],
        ["k"],
        ["Basic a2V5"],
        ["Bearer two words"],
        ["Bearer k\n"],
        ["Bearer ké"],
        ["Bearer " + "k" * 513],
        ["Bearer k", "Bearer k"],
        ["Bearer k, Bearer k"],
    ],
)
def test_any_other_header_and_more_than_one_give_none(headers: list[str]) -> None:
    assert bearer_key(headers) is None


def test_the_longest_key_has_512_characters() -> None:
    assert bearer_key(["Bearer " + "k" * 512]) == "k" * 512
