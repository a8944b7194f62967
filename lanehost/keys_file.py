"""The file of `--keys`: TOML, one table a scope.

    [scopes.team-a]
    key_digests = ["9f86d081…"]    # SHA-256 of each key, 64 hex digits
    weight = 2                     # its share against other scopes, 1 when left out

Laws: what is wrong is refused with the file, the field, the value and the limit, before the
server starts; nothing in it is ignored; a digest stands in it once. What stands in place of a
digest is never repeated: it may be a key.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from lanehost.addresses import explain
from lanehost.errors import StartupFailed
from lanehost.keys import KeyRing, Scope, digest_of

MAX_FILE_BYTES = 1 << 20
MAX_KEYS = 1024
MAX_WEIGHT = 1000
MAX_NAME_CHARACTERS = 64
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME_CHARACTERS}}}")
_DIGEST = re.compile(r"[0-9A-Fa-f]{64}")
_NO_KEY = digest_of("")
_MAX_SHOWN_CHARACTERS = 40
_MAX_SHOWN_BITS = 64


def read_keys(path: Path) -> KeyRing:
    """Read the file.

    Raises:
        StartupFailed: it cannot be read, or something in it is wrong.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise StartupFailed(f"--keys {path}: cannot be read: {explain(error)}") from error
    try:
        return parse_keys(raw)
    except ValueError as error:
        raise StartupFailed(f"--keys {path}: {error}") from error


def parse_keys(raw: bytes) -> KeyRing:
    """Read the bytes of the file.

    Raises:
        ValueError: something is wrong; it says the field, the value and the limit.
    """
    if len(raw) > MAX_FILE_BYTES:
        raise ValueError(f"has more than {MAX_FILE_BYTES} bytes")
    try:
        value = tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:  # not UTF-8, no TOML, a number without end
        raise ValueError(f"is not TOML: {error}") from error
    _refuse_unknown("", value, {"scopes"})
    tables = value.get("scopes", {})
    if not isinstance(tables, dict) or not tables:
        raise ValueError("scopes has no table; at least one [scopes.NAME] is needed")
    scopes = tuple(_parse_scope(name, table) for name, table in tables.items())
    _refuse_repeated(scopes)
    return KeyRing(scopes=scopes)


def is_scope_name(text: str) -> bool:
    """Say whether a scope can be called so: 1 to 64 letters, digits, `-` and `_` of ASCII."""
    return _NAME.fullmatch(text) is not None


def scope_table(name: str, key: str, weight: int) -> str:
    """Write the table of a scope with one key; the key itself is not in it."""
    digest = digest_of(key).hex()
    return f'[scopes.{name}]\nkey_digests = ["{digest}"]\nweight = {weight}\n'


def _parse_scope(name: str, table: Any) -> Scope:
    if not is_scope_name(name):
        shown = repr(name)[:_MAX_SHOWN_CHARACTERS]
        raise ValueError(
            f"scopes has the name {shown}, "
            f"allowed are 1 to {MAX_NAME_CHARACTERS} letters, digits, - and _"
        )
    field = f"scopes.{name}"
    if not isinstance(table, dict):
        raise ValueError(f"{field} is no table; write [{field}]")  # noqa: TRY004 - as all others
    _refuse_unknown(f"{field}.", table, {"key_digests", "weight"})
    return Scope(
        name=name,
        key_digests=_parse_digests(f"{field}.key_digests", table.get("key_digests")),
        weight=_parse_weight(f"{field}.weight", table.get("weight", 1)),
    )


def _parse_digests(field: str, value: Any) -> tuple[bytes, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{field} is no list of at least 1 digest")
    for index, digest in enumerate(value):
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise ValueError(f"{field}[{index}] is not the SHA-256 of a key: 64 hex digits")
        if bytes.fromhex(digest) == _NO_KEY:
            raise ValueError(f"{field}[{index}] is the SHA-256 of nothing, and not of a key")
    return tuple(bytes.fromhex(digest) for digest in value)


def _parse_weight(field: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= MAX_WEIGHT:
        # One that was written in hexadecimal can be too long for Python to write in decimals.
        is_long = isinstance(value, int) and value.bit_length() > _MAX_SHOWN_BITS
        shown = "too long a number" if is_long else repr(value)[:_MAX_SHOWN_CHARACTERS]
        raise ValueError(f"{field} is {shown}, allowed is 1 to {MAX_WEIGHT}")
    return value


def _refuse_unknown(place: str, table: dict[str, Any], known: set[str]) -> None:
    unknown = sorted(table.keys() - known)
    if unknown:
        shown = f"{place}{unknown[0]}"[: _MAX_SHOWN_CHARACTERS + len(place)]
        raise ValueError(f"{shown} is not known; known is {' and '.join(sorted(known))}")


def _refuse_repeated(scopes: tuple[Scope, ...]) -> None:
    owners: dict[bytes, str] = {}
    for scope in scopes:
        for index, digest in enumerate(scope.key_digests):
            if digest in owners:
                raise ValueError(
                    f"scopes.{scope.name}.key_digests[{index}] is one that scopes."
                    f"{owners[digest]} has already; a key opens one scope"
                )
            owners[digest] = scope.name
    if len(owners) > MAX_KEYS:
        raise ValueError(f"scopes have {len(owners)} key digests, limit {MAX_KEYS}")
