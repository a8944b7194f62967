"""Which prefixes of a sequence are worth files; pure.

    off    none
    full   all that was computed, then the prompt, then every chat boundary in it: deepest first
    auto   what the sequence has in common with one of the last N of its scope: others may too
    N      a checkpoint every N tokens, deepest first

Laws: a prefix is whole blocks of what was computed, and not shorter than `MIN_BLOCKS`; none is
named twice. An interval paces checkpoints, and their keys are still those of every token.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from struct import pack

from lanehost.errors import StartupFailed

# Less is computed as soon as it is read.
MIN_BLOCKS = 4
DEFAULT_RECENT = 64
MAX_RECENT = 4096
MAX_INTERVAL = 1 << 20
# What is remembered of recent sequences, of all scopes together: the scope that was here longest
# ago is forgotten first.
MAX_RECENT_BYTES = 64 << 20
_TOKEN_BYTES = 4


class ModeKind(Enum):
    """What is looked at."""

    OFF = "off"
    FULL = "full"
    AUTO = "auto"
    EVERY = "every"


@dataclass(frozen=True, slots=True)
class DiskMode:
    """A kind, and its number: of recent sequences for AUTO, of tokens for EVERY, else 0."""

    kind: ModeKind
    number: int = 0

    def __str__(self) -> str:
        match self.kind:
            case ModeKind.AUTO:
                return f"auto:{self.number}"
            case ModeKind.EVERY:
                return str(self.number)
            case _:
                return str(self.kind.value)


def parse_mode(text: str) -> DiskMode:
    """Read `off`, `full`, `auto`, `auto:N` or `N`.

    Raises:
        StartupFailed: It is none of them, or N is out of range.
    """
    if text in ("off", "full"):
        return DiskMode(ModeKind(text))
    if text == "auto":
        return DiskMode(ModeKind.AUTO, DEFAULT_RECENT)
    is_auto = text.startswith("auto:")
    number = text.removeprefix("auto:")
    limit = MAX_RECENT if is_auto else MAX_INTERVAL
    if not (number.isascii() and number.isdigit() and 1 <= int(number) <= limit):
        raise StartupFailed(
            f"--disk-cache-mode is {text!r}, allowed is off, full, auto, auto:N (1 to "
            f"{MAX_RECENT} sequences) or N (1 to {MAX_INTERVAL} tokens)"
        )
    return DiskMode(ModeKind.AUTO if is_auto else ModeKind.EVERY, int(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """A sequence whose state is there.

    Attributes:
        scope: Whose it is.
        token_ids: Every token that the state covers.
        num_prompt: How many of them are the prompt's.
        marks: Where in the prompt another is likely to part, rising.
    """

    scope: str
    token_ids: tuple[int, ...]
    num_prompt: int
    marks: tuple[int, ...]


class DiskPolicy:
    """Says which prefixes to save; remembers recent sequences where the mode is AUTO."""

    def __init__(self, mode: DiskMode, *, block_size: int) -> None:
        """Begin with nothing seen."""
        self._mode = mode
        self._block_size = block_size
        # Packed, by scope; the scope that was here last is the last.
        self._recent: dict[str, deque[bytes]] = {}
        self._num_recent_bytes = 0

    def __repr__(self) -> str:
        return f"<DiskPolicy {self._mode}>"

    def lengths(self, computed: Computed) -> tuple[int, ...]:
        """Return the prefixes to save as numbers of tokens, deepest first."""
        match self._mode.kind:
            case ModeKind.OFF:
                return ()
            case ModeKind.FULL:
                ends = (len(computed.token_ids), computed.num_prompt, *computed.marks)
                return self._cut(ends, limit=len(computed.token_ids))
            case ModeKind.AUTO:
                return self._cut((self._common(computed),), limit=len(computed.token_ids))
            case ModeKind.EVERY:
                step, end = self._mode.number, len(computed.token_ids)
                return self._cut(range(step, end + 1, step), limit=end)

    def _cut(self, ends: "range | tuple[int, ...]", *, limit: int) -> tuple[int, ...]:
        """Cut to whole blocks of what is there."""
        size = self._block_size
        lengths = {min(end, limit) // size * size for end in ends}
        return tuple(sorted((n for n in lengths if n >= MIN_BLOCKS * size), reverse=True))

    def _common(self, computed: Computed) -> int:
        """Return how many tokens a recent one has in common with it, and take it into them."""
        packed = pack(f"<{len(computed.token_ids)}I", *computed.token_ids)
        recent = self._recent.pop(computed.scope, None) or deque[bytes]()
        self._recent[computed.scope] = recent
        common = max((_num_common_bytes(packed, other) for other in recent), default=0)
        if len(packed) <= MAX_RECENT_BYTES:
            self._remember(recent, packed)
        return common // _TOKEN_BYTES

    def _remember(self, recent: deque[bytes], packed: bytes) -> None:
        if len(recent) == self._mode.number:
            self._num_recent_bytes -= len(recent.popleft())
        recent.append(packed)
        self._num_recent_bytes += len(packed)
        while self._num_recent_bytes > MAX_RECENT_BYTES:
            scope, oldest = next(iter(self._recent.items()))
            self._num_recent_bytes -= len(oldest.popleft())
            if not oldest:
                del self._recent[scope]


def _num_common_bytes(one: bytes, other: bytes) -> int:
    """Return how many bytes two texts begin with in common."""
    low, high = 0, min(len(one), len(other))
    # By halves: slices are compared in C.
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
