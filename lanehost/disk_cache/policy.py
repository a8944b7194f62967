"""Which prefixes of a sequence are worth files; pure.

    off    none
    full   all that was computed, then the prompt, then every chat boundary in it: deepest first
    auto   what the sequence has in common with one of the last N of its scope: others may too
    N      a checkpoint every N tokens, deepest first

Laws: a prefix is whole blocks of what was computed, not shorter than `MIN_BLOCKS`, and ends
inside no image; none is named twice. An interval paces checkpoints, and their keys are still
those of every token. What it takes to look at a sequence grows with its own length, and not with
what is remembered.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from enum import Enum

from lanehost.errors import StartupFailed
from lanehost.image_ids import cut_to_images

# Less is computed as soon as it is read.
MIN_BLOCKS = 4
DEFAULT_RECENT = 64
MAX_RECENT = 4096
MAX_INTERVAL = 1 << 20
# What is remembered of recent sequences, of all scopes together, some 150 bytes each: the scope
# that was here longest ago is forgotten first.
MAX_RECENT_BLOCKS = 1 << 18


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
        token_ids: The identity ids of all that the state covers.
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
        # By scope; the scope that was here last is the last.
        self._recent: dict[str, _Recent] = {}
        self._num_recent_blocks = 0

    def __repr__(self) -> str:
        return f"<DiskPolicy {self._mode}>"

    def lengths(self, computed: Computed) -> tuple[int, ...]:
        """Return the prefixes to save as numbers of tokens, deepest first."""
        match self._mode.kind:
            case ModeKind.OFF:
                return ()
            case ModeKind.FULL:
                ends = (len(computed.token_ids), computed.num_prompt, *computed.marks)
                return self._cut(ends, computed.token_ids)
            case ModeKind.AUTO:
                return self._cut((self._common(computed),), computed.token_ids)
            case ModeKind.EVERY:
                step, end = self._mode.number, len(computed.token_ids)
                return self._cut(range(step, end + 1, step), computed.token_ids)

    def _cut(self, ends: "range | tuple[int, ...]", ids: tuple[int, ...]) -> tuple[int, ...]:
        """Cut to whole blocks of what is there, and to whole images."""
        size = self._block_size
        lengths = {cut_to_images(ids, min(end, len(ids)), step=size) for end in ends}
        return tuple(sorted((n for n in lengths if n >= MIN_BLOCKS * size), reverse=True))

    def _common(self, computed: Computed) -> int:
        """Return how many tokens a recent one has in common with it, and take it into them."""
        size, ids = self._block_size, computed.token_ids
        recent = self._recent.pop(computed.scope, None) or _Recent()
        self._recent[computed.scope] = recent
        prefixes: list[int] = []
        for start in range(0, len(ids) - size + 1, size):
            # Of Python itself: where two agree by chance a prefix is saved that is worth less.
            prefixes.append(hash((prefixes[-1] if prefixes else 0, ids[start : start + size])))
        num_common = recent.num_common(prefixes)
        if len(prefixes) <= MAX_RECENT_BLOCKS:
            self._remember(recent, prefixes)
        return num_common * size

    def _remember(self, recent: "_Recent", prefixes: list[int]) -> None:
        if len(recent.sequences) == self._mode.number:
            self._num_recent_blocks -= recent.forget_oldest()
        recent.take(prefixes)
        self._num_recent_blocks += len(prefixes)
        while self._num_recent_blocks > MAX_RECENT_BLOCKS:
            scope, longest_ago = next(iter(self._recent.items()))
            self._num_recent_blocks -= longest_ago.forget_oldest()
            if not longest_ago.sequences:
                del self._recent[scope]


@dataclass(slots=True, eq=False)
class _Recent:
    """Recent sequences of a scope, each as a number for the prefix that ends with each block."""

    sequences: deque[list[int]] = field(default_factory=deque[list[int]])
    # Prefix → how many of them begin with it.
    counts: Counter[int] = field(default_factory=Counter[int])

    def num_common(self, prefixes: list[int]) -> int:
        """Return how many blocks one of them has in common with this sequence."""
        return next(
            (at for at, one in enumerate(prefixes) if one not in self.counts), len(prefixes)
        )

    def take(self, prefixes: list[int]) -> None:
        """Remember a sequence."""
        self.sequences.append(prefixes)
        self.counts.update(prefixes)

    def forget_oldest(self) -> int:
        """Forget the oldest; returns how many blocks it had."""
        oldest = self.sequences.popleft()
        for one in oldest:
            self.counts[one] -= 1
            if not self.counts[one]:
                del self.counts[one]
        return len(oldest)
