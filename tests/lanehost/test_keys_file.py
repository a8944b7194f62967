import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.errors import StartupFailed
from lanehost.keys import digest_of
from lanehost.keys_file import MAX_FILE_BYTES, parse_keys, read_keys, scope_table

HEX = digest_of("key-a").hex()
OTHER = digest_of("key-b").hex()
GOOD = f"""
[scopes.team-a]
key_digests = ["{HEX}"]
weight = 3

[scopes.team_b]
key_digests = ["{OTHER.upper()}", "{digest_of("key-c").hex()}"]
"""


def table(digests: str = f'["{HEX}"]', *, name: str = "a", more: str = "") -> str:
    return f"[scopes.{name}]\nkey_digests = {digests}\n{more}\n"


def test_a_file_becomes_scopes_with_keys_and_weights(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(GOOD)
    ring = read_keys(path)
    assert ring.weights == {"team-a": 3, "team_b": 1}
    assert [ring.scope_of(key) for key in ("key-a", "key-b", "key-c")] == [
        "team-a",
        "team_b",
        "team_b",
    ]


@given(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True), st.integers(1, 1000))
def test_a_table_that_was_written_is_read_back(name: str, weight: int) -> None:
    ring = parse_keys(scope_table(name, "secret", weight).encode())
    assert (ring.scope_of("secret"), ring.weights) == (name, {name: weight})


def test_the_key_is_not_in_its_table() -> None:
    assert "secret" not in scope_table("a", "secret", 1)


LONG = f"a{'b' * 64}"
WRONG = {
    "": "scopes has no table",
    "[scopes]": "scopes has no table",
    "scopes = 1": "scopes has no table",
    "scopes = [": "is not TOML",
    "scopes = " + "[" * 5000: "is not TOML",
    "colour = 1\n" + table(): "colour is not known; known is scopes",
    table(more="colour = 1"): "scopes.a.colour is not known; known is key_digests and weight",
    "[scopes]\na = 1": r"scopes.a is no table; write \[scopes.a\]",
    table(name='"two words"'): "the name 'two words', allowed are 1 to 64 letters",
    table(name='""'): "the name '', allowed are",
    table(name=LONG): "the name 'abbb.*, allowed are 1 to 64",
    "[scopes.a]": "scopes.a.key_digests is no list of at least 1",
    table("[]"): "scopes.a.key_digests is no list of at least 1",
    table(f'"{HEX}"'): "scopes.a.key_digests is no list of at least 1",
    table(f'["{HEX}", 1]'): r"scopes.a.key_digests\[1\] is not the SHA-256 of a key: 64 hex",
    table(f'["{HEX[1:]}"]'): r"scopes.a.key_digests\[0\] is not the SHA-256",
    table(f'["{"g" * 64}"]'): r"scopes.a.key_digests\[0\] is not the SHA-256",
    table(f'["{digest_of("").hex()}"]'): r"scopes.a.key_digests\[0\] is the SHA-256 of nothing",
    table(more="weight = 0"): "scopes.a.weight is 0, allowed is 1 to 1000",
    table(more="weight = 1001"): "scopes.a.weight is 1001, allowed is 1 to 1000",
    table(more="weight = true"): "scopes.a.weight is True, allowed is 1 to 1000",
    table(more="weight = 1.5"): "scopes.a.weight is 1.5, allowed is 1 to 1000",
    table(more=f"weight = 0x{'f' * 9999}"): "scopes.a.weight is too long a number, allowed is 1",
    table(more=f"weight = {'9' * 9999}"): "is not TOML: Exceeds the limit",
    table() + table(): "is not TOML: .*",
    table() + table(name="b"): r"scopes.b.key_digests\[0\] is one that scopes.a has already",
    table(f'["{HEX}", "{HEX.upper()}"]'): r"scopes.a.key_digests\[1\] is one that scopes.a has",
    table(str([digest_of(str(n)).hex() for n in range(1025)])): "1025 key digests, limit 1024",
    "#" * (MAX_FILE_BYTES + 1): f"has more than {MAX_FILE_BYTES} bytes",
}


@pytest.mark.parametrize(("text", "said"), WRONG.items(), ids=WRONG.values())
def test_what_is_wrong_is_refused_by_file_field_and_limit(text, said, tmp_path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(StartupFailed, match=rf"^--keys .*keys.toml: .*{said}"):
        read_keys(path)


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ValueError, match="is not TOML"):
        parse_keys(b"\xff")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartupFailed, match=r"--keys .*gone: cannot be read: No such file"):
        read_keys(tmp_path / "gone")


@pytest.mark.parametrize("key", ["my-secret-key", "ab" * 32])
def test_a_key_that_stands_in_place_of_its_digest_is_not_repeated(key: str) -> None:
    with pytest.raises(ValueError, match="key_digests") as caught:
        parse_keys(table(f'["{key}", "{key}"]').encode())
    assert key not in str(caught.value)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_keys_or_refused(raw: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert parse_keys(raw).scopes
