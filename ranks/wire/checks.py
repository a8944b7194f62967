"""What a decoded field must be; whoever decodes asks these."""

from collections.abc import Iterable
from typing import TypeVar

from ranks.errors import BadMessage

DIGEST_BYTES = 16

_Word = TypeVar("_Word")


def positive(field: str, value: int) -> int:
    """Return `value`, which is at least 1.

    Raises:
        BadMessage: It is something else; the message names the field and the value.
    """
    if value < 1:
        raise BadMessage(f"{field} is {value}, the least is 1")
    return value


def within(field: str, value: float, low: float, high: float) -> float:
    """Return `value`, which is finite and from `low` to `high`.

    Raises:
        BadMessage: It is something else; the message names the field and the value.
    """
    # Written so that a NaN is refused as well.
    if not low <= value <= high or value == float("inf"):
        raise BadMessage(f"{field} is {value}, allowed is {low} to {high}")
    return value


def digest_of(field: str, value: bytes) -> bytes:
    """Return a digest that is as long as ours are.

    Raises:
        BadMessage: It is something else; the message names the field and the value.
    """
    if len(value) != DIGEST_BYTES:
        raise BadMessage(f"{field} has {len(value)} bytes, a digest has {DIGEST_BYTES}")
    return value


def distinct(field: str, lane_ids: Iterable[int]) -> None:
    """Refuse a lane that is named twice.

    Raises:
        BadMessage: It is something else; the message names the field and the value.
    """
    seen: set[int] = set()
    for lane_id in lane_ids:
        if lane_id in seen:
            raise BadMessage(f"{field}: lane {lane_id} is there twice")
        seen.add(lane_id)


def known(field: str, number: int, words: dict[int, _Word]) -> _Word:
    """Return the word that a number stands for.

    Raises:
        BadMessage: It is something else; the message names the field and the value.
    """
    word = words.get(number)
    if word is None:
        raise BadMessage(f"{field} is {number}, known are {sorted(words)}")
    return word
