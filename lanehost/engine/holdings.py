"""What running jobs hold: lanes, KV blocks, and the prefixes that are kept of them.

Laws: what a step in flight still writes is freed when that step has retired, never
before; what was computed is kept before its lane is given up.
"""

from collections.abc import Mapping

from lanehost.admission.give_way import lane_to_give_way
from lanehost.admission.line import Line
from lanehost.admission.setup import AlreadyKept, Wait
from lanehost.admission.take_job import take_job
from lanehost.cache.blocks import BlockPool
from lanehost.cache.prompt_cache import CacheCounters, Entry, EntryKind, PromptCache
from lanehost.engine.disk_interface import Disk, NoDisk
from lanehost.engine.settle import is_unusable
from lanehost.job import Failed, Finished
from lanehost.lanes.growth import grow_lanes
from lanehost.lanes.lane import Lane, LaneEvent, LaneState
from lanehost.lanes.sequence import Sequence
from lanehost.lanes.table import LaneTable
from lanehost.rank_group.facts import GroupFacts
from lanehost.settings import EngineSettings


class Holdings:
    """Lanes, blocks and prompt cache, as one. Owned by the engine loop."""

    def __init__(
        self,
        facts: GroupFacts,
        settings: EngineSettings,
        *,
        counters: CacheCounters | None = None,
        disk: Disk | None = None,
    ) -> None:
        """Begin with all of them free.

        Args:
            facts: How much there is.
            settings: Whether prefixes are kept, and how much is guessed.
            counters: Those of the epoch before.
            disk: Where prefixes are kept beside memory.
        """
        self.lanes = LaneTable(
            facts.num_lanes,
            block_size=facts.block_size,
            max_drafts=settings.max_drafts,
            num_layers=facts.num_layers,
        )
        self.blocks = BlockPool(num_blocks=facts.num_blocks, block_size=facts.block_size)
        self.cache = PromptCache(self.blocks, is_on=settings.prompt_cache, counters=counters)
        self._disk = disk or NoDisk()
        self._disk.begin(self.lanes, self.blocks, self.cache)

    def __repr__(self) -> str:
        return f"<Holdings {self.lanes!r} {self.blocks!r} {self.cache!r}>"

    def successor(self, facts: GroupFacts, settings: EngineSettings) -> "Holdings":
        """Return those of the next epoch: all of them free, counting goes on."""
        return Holdings(facts, settings, counters=self.cache.counters, disk=self._disk)

    def take_job(self, line: Line) -> Lane | AlreadyKept | Wait:
        """Seat the next job of the line, or say what it waits for."""
        taken = take_job(line, self.lanes, self.blocks, self.cache, self._disk)
        if taken is Wait.BLOCKS and self._disk.recall():
            return take_job(line, self.lanes, self.blocks, self.cache, self._disk)
        return taken

    def lane_to_give_way(self, head: Sequence, weights: Mapping[str, int]) -> Lane | None:
        """Return the lane that gives way to the head of the line, if one does."""
        return lane_to_give_way(head, self.lanes, cache=self.cache, weights=weights)

    def grow(self) -> Lane | None:
        """Give lanes the blocks that they need next; returns the one that must park for it."""
        return grow_lanes(self.lanes, self.blocks, self.cache, self._disk)

    def keep(self, lane: Lane) -> Entry | None:
        """Keep what a lane has computed, for a prompt that begins alike; in memory."""
        return self.cache.keep(lane.job.scope, _computed(lane), lane.block_ids)

    def keep_ended(self, lane: Lane, event: Finished | Failed) -> None:
        """Keep what a lane has computed whose job has ended, on disk too if that is worth it."""
        if is_unusable(event):
            return
        entry = self.keep(lane)
        if isinstance(event, Finished):
            self._disk.save(lane.job, _computed(lane), entry)

    def keep_marks(self, lane: Lane, *, since: int) -> None:
        """Keep the prompt up to each mark that was passed since a position: where others part."""
        for mark in lane.job.marks:
            if since < mark <= lane.num_computed_tokens:
                prefix = lane.job.identity_ids[:mark]
                self.cache.keep(lane.job.scope, prefix, lane.block_ids, kind=EntryKind.MARK)

    def vacate(self, lane: Lane, *, last_landed_id: int) -> None:
        """Let a lane run out: it is free once the steps in flight have landed."""
        lane.fire(LaneEvent.FINISHED)
        self._release_if_retired(lane, last_landed_id)

    def release_retired(self, last_landed_id: int) -> None:
        """Free the lanes that have run out, and that nothing in flight writes any more."""
        for lane in list(self.lanes):
            self._release_if_retired(lane, last_landed_id)

    def _release_if_retired(self, lane: Lane, last_landed_id: int) -> None:
        is_out = lane.state is LaneState.DRAINING and not lane.is_in_pass
        if is_out and lane.last_step_id <= last_landed_id:
            self.blocks.give_back(self.lanes.release(lane))


def _computed(lane: Lane) -> tuple[int, ...]:
    assert lane.sequence is not None
    return lane.sequence.identity_ids[: lane.num_computed_tokens]
