"""The engine's side of the disk tier, over fake ranks and a fake disk."""

from dataclasses import replace
from typing import TYPE_CHECKING

from lanehost.disk_cache.index import DiskIndex
from lanehost.disk_cache.policy import DiskPolicy, parse_mode
from lanehost.disk_cache.tier import DiskTier
from lanehost.engine.disk import DiskParts, EngineDisk
from lanehost.job import DiskUse
from tests.support.disk_entries import MODEL
from tests.support.fake_files import BYTES_PER_TOKEN, FakeDisk, FakeShelf

if TYPE_CHECKING:
    from tests.support.fake_engine import EngineRig


class Timers:
    """Calls nothing by itself; `run_out` calls all that waits."""

    def __init__(self) -> None:
        self.waiting = []

    def call_later(self, delay_s, call) -> None:
        assert delay_s > 0
        self.waiting.append(call)

    def run_out(self) -> None:
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()


def disk_over(disk: FakeDisk, rig: "EngineRig", *, mode: str, budget: int) -> EngineDisk:
    """Build it, and give the ranks of the rig their files."""
    facts = rig.ranks.facts
    layout = replace(MODEL, block_size=facts.block_size).layout
    index = DiskIndex(layout, block_size=facts.block_size, budget_bytes=budget)
    for manifest in disk.manifests.values():
        index.add(manifest)
    shelf = FakeShelf(disk)
    shelf.comes_back = True
    shelf.tell(rig.inbox.put_file_news)
    rig.ranks.use_disk(disk)
    rig.timers = Timers()
    rig.shelf = shelf
    policies = {
        DiskUse.DEFAULT: DiskPolicy(parse_mode(mode), block_size=facts.block_size),
        DiskUse.FULL: DiskPolicy(parse_mode("full"), block_size=facts.block_size),
    }
    parts = DiskParts(
        tier=DiskTier(index, shelf, clock=rig.clock),
        policies=policies,
        layout=layout,
        bytes_per_block=facts.block_size * BYTES_PER_TOKEN,
    )
    return EngineDisk(parts, rig.inbox, call_later=rig.timers.call_later, wall_clock=lambda: 0.0)
