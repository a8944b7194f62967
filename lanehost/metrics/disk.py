"""The metrics of the prompt cache on disk, read off its tier; all 0 where there is none."""

from collections import Counter
from collections.abc import Callable

from lanehost.disk_cache.interface import FileReason
from lanehost.disk_cache.tier import DiskTier
from lanehost.disk_cache.works import LATE
from lanehost.metrics.family import Family, Kind, Samples, counter, gauge
from lanehost.metrics.seen import Sight

# Why a save was not begun, or came to nothing; see `lanehost.disk_cache.saves`.
DROPPED = ("budget", "memory", "no_ranks", "paused", "queue_full", "recalled")
_NO_BLOCKS = "no_blocks"


def _of_tier(read: Callable[[DiskTier], float]) -> Callable[[Sight], float]:
    """Read a number off the tier; 0 where there is none."""
    return lambda sight: 0 if sight.disk is None else read(sight.disk)


def _by_why(
    read: Callable[[DiskTier], Counter[str]], reasons: tuple[str, ...]
) -> Callable[[Sight], Samples]:
    def samples(sight: Sight) -> Samples:
        counts = Counter[str]() if sight.disk is None else read(sight.disk)
        return [((reason,), counts[reason]) for reason in reasons]

    return samples


DISK: tuple[Family[Sight], ...] = (
    gauge(
        "lanehost_disk_cache_entries",
        "Prefixes that have files, those of other models in the folder included.",
        _of_tier(lambda tier: tier.index.num_entries),
    ),
    gauge(
        "lanehost_disk_cache_bytes",
        "Bytes of these files, on all ranks together.",
        _of_tier(lambda tier: tier.index.num_bytes),
    ),
    gauge(
        "lanehost_disk_cache_budget_bytes",
        "The most that they may take.",
        _of_tier(lambda tier: tier.index.budget_bytes),
    ),
    gauge(
        "lanehost_disk_cache_waiting",
        "Prefixes that wait to be written.",
        _of_tier(lambda tier: tier.num_waiting),
    ),
    gauge(
        "lanehost_disk_cache_fetches",
        "Prefixes that are on their way into memory now.",
        _of_tier(lambda tier: tier.num_fetches),
    ),
    counter(
        "lanehost_disk_cache_hits_total",
        "Prefixes that were brought into memory for a request.",
        _of_tier(lambda tier: tier.counters.hits),
    ),
    counter(
        "lanehost_disk_cache_hit_tokens_total",
        "Tokens that they covered.",
        _of_tier(lambda tier: tier.counters.hit_tokens),
    ),
    counter(
        "lanehost_disk_cache_fetch_seconds_total",
        "What bringing them took, in sum.",
        _of_tier(lambda tier: tier.counters.fetch_seconds),
    ),
    Family(
        name="lanehost_disk_cache_misses_total",
        kind=Kind.COUNTER,
        meaning="Files that were not what they should be, and were moved aside.",
        labels=("reason",),
        read=_by_why(
            lambda tier: tier.counters.misses, tuple(reason.value for reason in FileReason)
        ),
    ),
    counter(
        "lanehost_disk_cache_saves_total",
        "Prefixes that were written.",
        _of_tier(lambda tier: tier.counters.saved),
    ),
    counter(
        "lanehost_disk_cache_saved_bytes_total",
        "Bytes that they took, on all ranks together.",
        _of_tier(lambda tier: tier.counters.saved_bytes),
    ),
    counter(
        "lanehost_disk_cache_save_seconds_total",
        "What the slowest rank took for each, in sum.",
        _of_tier(lambda tier: tier.counters.save_seconds),
    ),
    Family(
        name="lanehost_disk_cache_dropped_total",
        kind=Kind.COUNTER,
        meaning="Prefixes that were worth files, and were not written.",
        labels=("reason",),
        read=_by_why(lambda tier: tier.counters.dropped, DROPPED),
    ),
    counter(
        "lanehost_disk_cache_evicted_total",
        "Prefixes that went to make room.",
        _of_tier(lambda tier: tier.counters.evicted),
    ),
    counter(
        "lanehost_disk_cache_checks_total",
        "Replies that hit on disk and were computed again (--cache-self-check).",
        _of_tier(lambda tier: tier.counters.checks),
    ),
    counter(
        "lanehost_disk_cache_differences_total",
        "Of these, the ones that drew something else: a bug of ours.",
        _of_tier(lambda tier: tier.counters.differences),
    ),
    Family(
        name="lanehost_disk_cache_faults_total",
        kind=Kind.COUNTER,
        meaning="What a disk or a rank did not do.",
        labels=("reason",),
        read=_by_why(
            lambda tier: tier.counters.faults,
            (*(reason.value for reason in FileReason), _NO_BLOCKS, LATE),
        ),
    ),
)
