"""Decide where a reply ends, and hold back text until it is known to belong to it.

Pure: no clock, no I/O.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from lanehost.job import FinishReason, StopParams


@dataclass(frozen=True, slots=True, kw_only=True)
class StopVerdict:
    """Text that may be delivered now, and why the reply ended, if it did."""

    text: str
    reason: FinishReason | None = None
    matched: str | int | None = None


def check_stop(stop: StopParams, vocab_size: int) -> None:
    """Refuse stop rules that cannot work (InvalidRequest)."""
    raise NotImplementedError


class StopRules:
    """The stop rules of one job: `push` every token, then `finish` once it has ended.

    For an id of which `is_end_id` is true, do not push it into the detokenizer and
    hand "" as its text. When `push` gives a reason, call `finish(detokenizer.flush())`:
    its text is the last of the reply, and its reason and match are the final ones.
    """

    def __init__(
        self, eos_token_ids: AbstractSet[int], stop: StopParams, *, max_tokens: int
    ) -> None:
        """Start before the first generated token."""
        raise NotImplementedError

    def is_end_id(self, token_id: int) -> bool:
        """Tell whether the id ends the reply; its text is then not part of it."""
        raise NotImplementedError

    def push(self, token_id: int, text: str) -> StopVerdict:
        """Count a token and take the characters that it completes."""
        raise NotImplementedError

    def finish(self, tail: str) -> StopVerdict:
        """End the reply: take its last characters and release what is held back."""
        raise NotImplementedError
