"""The metrics that are read off the line and the engine when somebody asks.

Nothing is kept between two looks: what is told is what is there.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from lanehost.admission.line import Line
from lanehost.disk_cache.tier import DiskTier
from lanehost.door.prompt_images import PromptImages
from lanehost.engine.engine import Engine
from lanehost.engine.observer import Observers
from lanehost.journal.journal import Journal
from lanehost.lanes.lane import LaneState
from lanehost.metrics.family import Family, Kind, Samples, by_one, counter, gauge
from lanehost.metrics.observer import MetricsObserver
from lanehost.rank_group.facts import GroupFacts
from lanehost.settings import EngineSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What there is to look at, once the model is loaded.

    Attributes:
        engine: Its lanes, blocks and prompt cache.
        line: Who waits.
        settings: What the operator chose.
        observers: Who looks on.
        told: Knows since when jobs wait and steps are out.
        journal: Of open streams, if there is one.
        disk: The prompt cache on disk, if there is one.
        held: The images of requests, on the master, if anybody prepares some.
    """

    engine: Engine
    line: Line
    settings: EngineSettings
    observers: Observers
    told: MetricsObserver
    journal: Journal | None = None
    disk: DiskTier | None = None
    held: PromptImages | None = None

    @property
    def facts(self) -> GroupFacts:
        """What the ranks agreed on in this epoch, or the one before."""
        return self.engine.facts


def _path(sight: Sight) -> Samples:
    facts, settings = sight.facts, sight.settings
    labels = (
        facts.device,
        facts.dtype,
        facts.weights,
        facts.collective,
        str(facts.world_size),
        "on" if settings.prompt_cache else "off",
        str(settings.max_drafts),
    )
    return [(labels, 1)]


def _lanes(sight: Sight) -> dict[str, int]:
    counts = Counter(lane.state for lane in sight.engine.lanes)
    counts[LaneState.FREE] = sight.engine.lanes.num_free
    return {state.value: counts[state] for state in LaneState}


def _of_journal(
    read: Callable[[Journal], float],
) -> Callable[[Sight], float]:
    """Read a number off the journal; 0 where there is none."""
    return lambda sight: 0 if sight.journal is None else read(sight.journal)


JOURNAL: tuple[Family[Sight], ...] = (
    gauge(
        "lanehost_journal_bytes",
        "Bytes of the journal, with the room that open replies may still take; 0 without one.",
        _of_journal(lambda journal: journal.num_bytes),
    ),
    gauge(
        "lanehost_journal_open_streams",
        "Replies in the journal that have not ended.",
        _of_journal(lambda journal: journal.streams.num_open),
    ),
    gauge(
        "lanehost_journal_kept_streams",
        "Replies in the journal that have ended and can still be resumed.",
        _of_journal(lambda journal: journal.streams.num_kept),
    ),
    gauge(
        "lanehost_journal_failing",
        "1 while the journal cannot be written: new requests are refused, replies go on.",
        _of_journal(lambda journal: journal.is_failing),
    ),
    gauge(
        "lanehost_journal_recovered_streams",
        "Open replies of an earlier master that this one found in the journal.",
        _of_journal(lambda journal: journal.num_recovered),
    ),
    gauge(
        "lanehost_journal_given_up_streams",
        "Of those, the ones that could not go on; the log says why.",
        _of_journal(lambda journal: journal.num_given_up),
    ),
    gauge(
        "lanehost_journal_damaged_records",
        "Records that had changed on the disk when the journal was read.",
        _of_journal(lambda journal: journal.num_damaged_records),
    ),
)

SEEN: tuple[Family[Sight], ...] = (
    Family(
        name="lanehost_path_info",
        kind=Kind.INFO,
        meaning="How replies are computed: where, in what, and with which short cuts.",
        labels=(
            "device",
            "dtype",
            "weights",
            "collective",
            "world_size",
            "prompt_cache",
            "max_drafts",
        ),
        read=_path,
    ),
    gauge(
        "lanehost_rank_group_epoch",
        "How often the ranks have formed a group.",
        lambda sight: sight.facts.epoch,
    ),
    Family(
        name="lanehost_requests_waiting",
        kind=Kind.GAUGE,
        meaning="Accepted requests that wait for a lane, or for a lane again.",
        labels=("priority", "scope"),
        read=lambda sight: sight.told.num_waiting.items(),
    ),
    Family(
        name="lanehost_wait_age_seconds",
        kind=Kind.GAUGE,
        meaning="How long the request has waited that waits longest; 0 when nobody waits.",
        labels=("priority", "scope"),
        read=lambda sight: sight.told.wait_age_s.items(),
    ),
    gauge(
        "lanehost_tokens_waiting",
        "Tokens that wait for a lane: of prompts, and of replies that gave one back.",
        lambda sight: sight.line.num_tokens,
    ),
    gauge(
        "lanehost_requests_open",
        "Requests that were accepted and have not ended, waiting or running.",
        lambda sight: sight.engine.num_open_jobs,
    ),
    Family(
        name="lanehost_lanes",
        kind=Kind.GAUGE,
        meaning="Lanes by state; those that drain wait for a step in flight.",
        labels=("state",),
        read=by_one(_lanes),
    ),
    gauge(
        "lanehost_step_age_seconds",
        "How long the oldest step in flight has been with the ranks; 0 when nobody waits for it.",
        lambda sight: sight.told.step_age_s,
    ),
    gauge(
        "lanehost_kv_blocks",
        "KV blocks in all.",
        lambda sight: sight.engine.blocks.num_blocks,
    ),
    gauge(
        "lanehost_kv_free_blocks",
        "KV blocks that nobody holds.",
        lambda sight: sight.engine.blocks.num_free,
    ),
    gauge(
        "lanehost_kv_kept_blocks",
        "KV blocks that the prompt cache holds; running requests may share them.",
        lambda sight: sight.engine.cache.num_kept_blocks,
    ),
    gauge(
        "lanehost_kv_borrowed_blocks",
        "Of the kept blocks, those that a look-up holds right now.",
        lambda sight: sight.engine.cache.num_borrowed_blocks,
    ),
    gauge(
        "lanehost_kv_dead_blocks",
        "Of the kept blocks, those that go as soon as their last borrower has reported.",
        lambda sight: sight.engine.cache.num_dead_blocks,
    ),
    gauge(
        "lanehost_kv_bytes",
        "Bytes of all KV blocks, on all ranks together.",
        lambda sight: sight.engine.blocks.num_blocks * sight.facts.kv_bytes_per_block,
    ),
    gauge(
        "lanehost_kv_free_bytes",
        "Bytes of the free KV blocks, on all ranks together.",
        lambda sight: sight.engine.blocks.num_free * sight.facts.kv_bytes_per_block,
    ),
    gauge(
        "lanehost_kv_kept_bytes",
        "Bytes of the kept KV blocks, on all ranks together.",
        lambda sight: sight.engine.cache.num_kept_blocks * sight.facts.kv_bytes_per_block,
    ),
    gauge(
        "lanehost_cache_entries",
        "Prefixes that the prompt cache keeps.",
        lambda sight: sight.engine.cache.num_entries,
    ),
    counter(
        "lanehost_cache_entries_kept_total",
        "Prefixes that were put into the prompt cache.",
        lambda sight: sight.engine.cache.counters.kept,
    ),
    counter(
        "lanehost_cache_entries_refreshed_total",
        "Prefixes that were there already when they were to be kept.",
        lambda sight: sight.engine.cache.counters.refreshed,
    ),
    counter(
        "lanehost_cache_entries_evicted_total",
        "Prefixes that went to make room.",
        lambda sight: sight.engine.cache.counters.evicted,
    ),
    gauge(
        "lanehost_observers_failed",
        "Of the recorder and what counts, those that failed: what they say is of the past.",
        lambda sight: sight.observers.num_failed,
    ),
    *JOURNAL,
)
