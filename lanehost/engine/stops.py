"""Decide where a reply ends, and hold back text until it is known to belong to it.

Pure: no clock, no I/O. The rules, in the order in which they are asked:

1. An end id (a stop id, or an eos id unless `ignore_eos`) ends the reply before its own
   text. The id is counted. An id that is both is reported as a stop id: the client named it.
2. A stop string ends the reply before its first character. Of all matches in the reply's
   text the earliest wins, and of those that start together the longest, wherever tokens
   and characters were cut: the match is a function of the whole text. A match that a
   longer or an earlier one could still overtake therefore waits for more text.
3. `max_tokens` ends the reply after its text; at 0 it has ended before its first token.

Laws: no part of the stop string that ended the reply is delivered; text that cannot be
part of a match is delivered at once; the prompt's text never counts. The work is linear
in the text, times the number of strings; what was released is forgotten.

>>> rules = StopRules(frozenset({2}), StopParams(strings=("END",)), max_tokens=9)
>>> [rules.push(token_id, text).text for token_id, text in ((7, "so E"), (8, "Nd."), (9, " EN"))]
['so ', 'ENd.', ' ']
>>> rules.push(2, "").reason, rules.finish("").text
(<FinishReason.EOS: 'eos'>, 'EN')
"""

from array import array
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from lanehost.errors import InvalidRequest
from lanehost.job import FinishReason, StopParams

MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 1024
MAX_STOP_IDS = 1024


def check_stop(stop: StopParams, vocab_size: int) -> None:
    """Refuse stop rules that cannot work or that cost too much.

    Raises:
        InvalidRequest: names the field, the value and the limit.
    """
    if len(stop.strings) > MAX_STOP_STRINGS:
        raise InvalidRequest(
            "stop.strings", f"{len(stop.strings)} strings, at most {MAX_STOP_STRINGS} are allowed"
        )
    for index, string in enumerate(stop.strings):
        _check_string(index, string)
    if len(stop.token_ids) > MAX_STOP_IDS:
        raise InvalidRequest(
            "stop.token_ids", f"{len(stop.token_ids)} ids, at most {MAX_STOP_IDS} are allowed"
        )
    for token_id in stop.token_ids:
        if not 0 <= token_id < vocab_size:
            raise InvalidRequest(
                "stop.token_ids", f"id {token_id} is outside the vocabulary of {vocab_size} tokens"
            )


def _check_string(index: int, string: str) -> None:
    if not string:
        raise InvalidRequest("stop.strings", f"string {index} is empty")
    if len(string) > MAX_STOP_CHARS:
        raise InvalidRequest(
            "stop.strings",
            f"string {index} has {len(string)} characters, at most {MAX_STOP_CHARS} are allowed",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StopVerdict:
    """Text that may be delivered now, and why the reply ended, if it did."""

    text: str
    reason: FinishReason | None = None
    matched: str | int | None = None


class StopRules:
    """The stop rules of one job: `push` every token, then `finish` once one ended the reply.

    Hand "" as the text of an id of which `is_end_id` is true, and keep it from the
    detokenizer. Once `push` gives a reason, call `finish(detokenizer.flush())`: its text is
    the last of the reply, and its reason and match are the final ones, because text that was
    held back can still hold a match. Deliver the text of every verdict, in order. A reply of
    no tokens is only finished.
    """

    __slots__ = ("_end", "_eos_ids", "_max_tokens", "_num_tokens", "_scan", "_stop_ids")

    def __init__(
        self, eos_token_ids: AbstractSet[int], stop: StopParams, *, max_tokens: int
    ) -> None:
        """Start before the first generated token; `stop` has passed `check_stop`."""
        assert max_tokens >= 0, max_tokens
        self._eos_ids = frozenset[int]() if stop.ignore_eos else frozenset(eos_token_ids)
        self._stop_ids = frozenset(stop.token_ids)
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._scan = _Scan(stop.strings) if stop.strings else None
        self._end: StopVerdict | None = None
        if max_tokens == 0:
            self._end = StopVerdict(text="", reason=FinishReason.LENGTH)

    def __repr__(self) -> str:
        """Show how far the reply is."""
        end = self._end.reason.name if self._end and self._end.reason else "OPEN"
        return f"<StopRules {end} {self._num_tokens}/{self._max_tokens}>"

    @property
    def num_tokens(self) -> int:
        """Tokens pushed, the one that ended the reply included."""
        return self._num_tokens

    def is_end_id(self, token_id: int) -> bool:
        """Tell whether the id ends the reply; its text is then not part of it."""
        return token_id in self._stop_ids or token_id in self._eos_ids

    def push(self, token_id: int, text: str) -> StopVerdict:
        """Count a token and take the characters that it completes.

        The text of an end id is not part of the reply and is dropped.
        """
        assert self._end is None, self
        self._num_tokens += 1
        if self.is_end_id(token_id):
            stopped = token_id in self._stop_ids
            reason = FinishReason.STOP if stopped else FinishReason.EOS
            return self._ended(StopVerdict(text="", reason=reason, matched=token_id))
        released = self._scan.take(text) if self._scan else text
        if self._scan and self._scan.is_settled:
            matched = self._scan.found
            return self._ended(
                StopVerdict(text=released, reason=FinishReason.STOP, matched=matched)
            )
        if self._num_tokens == self._max_tokens:
            return self._ended(StopVerdict(text=released, reason=FinishReason.LENGTH))
        return StopVerdict(text=released)

    def finish(self, tail: str) -> StopVerdict:
        """Take the last characters, and release what is held back before any match.

        A reply that is finished before anything ended it (a cancelled one) has no reason.
        """
        end = self._end or StopVerdict(text="")
        if self._scan is None:
            return replace(end, text=tail)
        released = self._scan.take(tail) + self._scan.release()
        if self._scan.found is not None:
            return StopVerdict(text=released, reason=FinishReason.STOP, matched=self._scan.found)
        return replace(end, text=released)

    def _ended(self, verdict: StopVerdict) -> StopVerdict:
        self._end = verdict
        return verdict


class _StopString:
    """One stop string, and how many of its characters the text read so far ends in.

    Knuth-Morris-Pratt: when a character does not fit, the longest shorter beginning that
    the text also ends in (a border) is tried, so no character is read twice.
    """

    __slots__ = ("_borders", "num_met", "string")

    def __init__(self, string: str) -> None:
        self.string = string
        self.num_met = 0
        self._borders = _borders(string)

    def is_met_by(self, character: str) -> bool:
        """Read one character, and tell whether the text now ends in the whole string."""
        num_met = self.num_met
        while num_met and self.string[num_met] != character:
            num_met = self._borders[num_met]
        if self.string[num_met] == character:
            num_met += 1
        is_met = num_met == len(self.string)
        # A second match inside the first would start later and could never win: begin anew.
        self.num_met = 0 if is_met else num_met
        return is_met


def _borders(string: str) -> "array[int]":  # array takes no parameter when run, before 3.12
    """Give, for each number of first characters but all, the longest proper border of them.

    >>> list(_borders("ababc"))
    [0, 0, 0, 1, 2]
    """
    borders = array("H", [0, 0])
    border = 0
    for character in string[1:-1]:
        while border and string[border] != character:
            border = borders[border]
        border += string[border] == character
        borders.append(border)
    return borders


class _Scan:
    """The walk over one reply's text: what is held back, and the best match so far."""

    __slots__ = ("_first_characters", "_found_at", "_held", "_strings", "found", "is_settled")

    def __init__(self, strings: tuple[str, ...]) -> None:
        self._strings = [_StopString(string) for string in strings]
        self._first_characters = frozenset(string[0] for string in strings)
        self._held = ""
        self._found_at = 0  # where in the held text the match starts, if there is one
        self.found: str | None = None
        self.is_settled = False

    def take(self, text: str) -> str:
        """Add text and give back what can no longer be part of a match."""
        if not self._held and self._first_characters.isdisjoint(text):
            return text
        buffer = self._held + text
        open_from = 0
        for end in range(len(self._held) + 1, len(buffer) + 1):
            open_from = self._read(buffer[end - 1], end)
            if self.found is not None and open_from > self._found_at:
                self.is_settled = True
                open_from = self._found_at
                break
        self._held = buffer[open_from:]
        self._found_at -= open_from
        return buffer[:open_from]

    def release(self) -> str:
        """Give back what is held, up to the match if there is one; nothing more will come."""
        released = self._held if self.found is None else self._held[: self._found_at]
        self._held = ""
        self._found_at = 0
        return released

    def _read(self, character: str, end: int) -> int:
        """Read the character before `end`; give where the earliest match still grows from."""
        open_from = end
        for stop in self._strings:
            if stop.is_met_by(character):
                start = end - len(stop.string)
                # Equal starts: this one ends later, so it is the longer one.
                if self.found is None or start <= self._found_at:
                    self.found, self._found_at = stop.string, start
            open_from = min(open_from, end - stop.num_met)
        return open_from
