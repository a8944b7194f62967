"""What became of entries and look-ups of the disk tier, since the start."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class DiskCounters:
    """Counts; owned by the tier, read by the metrics.

    Attributes:
        saved: Entries that were written.
        saved_bytes: What their files take, on all ranks.
        save_seconds: What the slowest rank took for each, in sum.
        dropped: Saves that were not begun, by why.
        hits: Entries that were brought into memory for a request.
        hit_tokens: Tokens that they covered.
        fetch_seconds: From the first order to the last answer, in sum.
        misses: Entries that were not what they should be, by why.
        faults: Works that a system or a rank did not do, by why.
        evicted: Entries that made room.
        checks: Hits that were computed cold too (`--cache-self-check`).
        differences: Checks that drew something else.
    """

    saved: int = 0
    saved_bytes: int = 0
    save_seconds: float = 0.0
    dropped: Counter[str] = field(default_factory=Counter[str])
    hits: int = 0
    hit_tokens: int = 0
    fetch_seconds: float = 0.0
    misses: Counter[str] = field(default_factory=Counter[str])
    faults: Counter[str] = field(default_factory=Counter[str])
    evicted: int = 0
    checks: int = 0
    differences: int = 0
