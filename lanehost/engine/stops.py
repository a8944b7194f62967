"""Decide where a reply ends, and hold back text until it is known to belong to it.

Pure: no clock, no I/O. The rules, in the order in which they are asked:

1. An end id (a stop id, or an eos id unless `ignore_eos`) ends the reply before its own
   text. The id is counted. An id that is both is reported as a stop id: the client named it.
2. A stop string ends the reply before its first character. Of all matches in the reply's
   text the earliest wins, and of those that start together the longest, wherever tokens
   and characters were cut: the match is a function of the whole text. A match that a
   longer or an earlier one could still overtake therefore waits for more text.
3. `max_tokens` ends the reply after its text.

Laws: no part of the stop string that ended the reply is delivered; text that cannot be
part of a match is delivered at once; the prompt's text never counts. The work is linear
in the text: one walk of an Aho-Corasick automaton, which forgets what it has released.

>>> rules = StopRules(frozenset({2}), StopParams(strings=("END",)), max_tokens=9)
>>> [rules.push(token_id, text).text for token_id, text in ((7, "so E"), (8, "Nd."), (9, " EN"))]
['so ', 'ENd.', ' ']
>>> rules.push(2, "").reason, rules.finish("").text
(<FinishReason.EOS: 'eos'>, 'EN')
"""

from collections import deque
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
    held back can still hold a match. Deliver the text of every verdict, in order.
    """

    __slots__ = ("_end", "_eos_ids", "_max_tokens", "_num_tokens", "_scan", "_stop_ids")

    def __init__(
        self, eos_token_ids: AbstractSet[int], stop: StopParams, *, max_tokens: int
    ) -> None:
        """Start before the first generated token; `stop` has passed `check_stop`."""
        assert max_tokens >= 1, max_tokens
        self._eos_ids = frozenset[int]() if stop.ignore_eos else frozenset(eos_token_ids)
        self._stop_ids = frozenset(stop.token_ids)
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._scan = _Scan(_StopAutomaton(stop.strings)) if stop.strings else None
        self._end: StopVerdict | None = None

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


class _StopAutomaton:
    """Aho-Corasick over the stop strings; a node is the text that led to it.

    For each node: its children by character; `fail`, its longest proper suffix that is a
    node; `longest`, the longest stop string that it ends in; `live`, the length of its
    longest suffix that a stop string could still grow from.
    """

    __slots__ = ("children", "fail", "live", "longest")

    def __init__(self, strings: tuple[str, ...]) -> None:
        self.children: list[dict[str, int]] = [{}]
        self.fail = [0]
        self.longest: list[str | None] = [None]
        self.live = [0]
        for string in strings:
            self._add(string)
        self._link()

    def step(self, node: int, character: str) -> int:
        """Go on from a node by one character."""
        while node and character not in self.children[node]:
            node = self.fail[node]
        return self.children[node].get(character, 0)

    def _add(self, string: str) -> None:
        node = 0
        for depth, character in enumerate(string, start=1):
            child = self.children[node].setdefault(character, len(self.children))
            if child == len(self.children):
                self.children.append({})
                self.fail.append(0)
                self.longest.append(None)
                self.live.append(depth)
            node = child
        self.longest[node] = string

    def _link(self) -> None:
        """Fill in the failure links, shortest nodes first."""
        queue = deque([0])
        while queue:
            node = queue.popleft()
            for character, child in self.children[node].items():
                fail = self.step(self.fail[node], character) if node else 0
                self.fail[child] = fail
                if self.longest[child] is None:
                    self.longest[child] = self.longest[fail]
                if not self.children[child]:
                    self.live[child] = self.live[fail]
                queue.append(child)


class _Scan:
    """The walk over one reply's text: what is held back, and the best match so far."""

    __slots__ = ("_automaton", "_found_at", "_held", "_node", "found", "is_settled")

    def __init__(self, automaton: _StopAutomaton) -> None:
        self._automaton = automaton
        self._node = 0
        self._held = ""
        self._found_at = 0  # where in the held text the match starts, if there is one
        self.found: str | None = None
        self.is_settled = False

    def take(self, text: str) -> str:
        """Add text and give back what can no longer be part of a match."""
        if self.is_settled:
            return ""
        buffer = self._held + text
        for position in range(len(self._held), len(buffer)):
            if self._settles(buffer[position], position + 1):
                self.is_settled = True
                break
        cut = self._found_at if self.is_settled else self._open_from(len(buffer))
        self._held = buffer[cut:]
        self._found_at -= cut
        return buffer[:cut]

    def release(self) -> str:
        """Give back what is held, up to the match if there is one; nothing more will come."""
        released = self._held if self.found is None else self._held[: self._found_at]
        self._held = ""
        self._found_at = 0
        return released

    def _settles(self, character: str, end: int) -> bool:
        """Walk on to `end` in the buffer, and tell whether the match can no longer change."""
        self._node = self._automaton.step(self._node, character)
        string = self._automaton.longest[self._node]
        if string is not None:
            start = end - len(string)
            # Equal starts: this one ends later, so it is the longer one.
            if self.found is None or start <= self._found_at:
                self.found, self._found_at = string, start
        return self.found is not None and self._open_from(end) > self._found_at

    def _open_from(self, end: int) -> int:
        """Where in the buffer the earliest match could start that is still growing."""
        return end - self._automaton.live[self._node]
