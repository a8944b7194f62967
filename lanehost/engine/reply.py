"""The reply of one job as it grows: token ids in, deliverable text and the end out."""

from dataclasses import dataclass
from typing import Protocol

from lanehost.engine.stops import StopRules
from lanehost.job import FinishReason


class DetokenizerLike(Protocol):
    """Turns token ids into whole characters."""

    def push(self, token_id: int) -> str:
        """Return the characters that this id completes."""
        ...

    def flush(self) -> str:
        """Return what is left when the reply ends."""
        ...


@dataclass(frozen=True, slots=True)
class ReplyStep:
    """What one token brought: text to deliver now, and the end if it is one."""

    text: str
    reason: FinishReason | None = None
    matched: str | int | None = None


class Reply:
    """Counts tokens, makes text of them, and knows when to end. Owned by the engine loop."""

    def __init__(self, detokenizer: DetokenizerLike, stops: StopRules) -> None:
        """Begin with no tokens."""
        self._detokenizer = detokenizer
        self._stops = stops
        self._num_tokens = 0

    def __repr__(self) -> str:
        return f"<Reply {self._num_tokens} tokens>"

    @property
    def num_tokens(self) -> int:
        """Tokens generated, the one that ended the reply included."""
        return self._num_tokens

    def push(self, token_id: int) -> ReplyStep:
        """Take the next token."""
        self._num_tokens += 1
        text = "" if self._stops.is_end_id(token_id) else self._detokenizer.push(token_id)
        verdict = self._stops.push(token_id, text)
        if verdict.reason is None:
            return ReplyStep(verdict.text)
        last = self._stops.finish(self._detokenizer.flush())
        return ReplyStep(verdict.text + last.text, last.reason, last.matched)
