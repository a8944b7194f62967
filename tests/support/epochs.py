"""Epochs of rank processes of arithmetic, and what the log and the watcher say of them."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from lanehost.errors import RankGroupLost
from lanehost.rank_group.events import LossCause
from lanehost.rank_group.facts import GroupFacts
from lanehost.rank_group.group import RankGroup
from lanehost.rank_group.supervisor import RANK_COMMAND, RankSupervisor, running_rank_groups
from tests.support.plan_writer import PlanWriter
from tests.support.processes import is_alive
from tests.support.rank_facts import group_settings
from tests.support.rank_process import rank_command

WITHIN_S = 60


@dataclass
class WatchedEpochs:
    """Implements `EpochWatcher`: remembers."""

    told: list[Any] = field(default_factory=list)

    def rank_lost(self, cause: LossCause) -> None:
        self.told.append(("lost", cause))

    def epoch_ended(self, error: RankGroupLost, cause: LossCause) -> None:
        self.told.append(("ended", error.epoch))

    def epoch_formed(self, facts: GroupFacts, recovery_s: float) -> None:
        self.told.append(("formed", facts.epoch))


@dataclass
class Epochs:
    """A running supervisor, its log and its first group."""

    supervisor: RankSupervisor
    logs: list[Any]
    watched: WatchedEpochs
    group: RankGroup
    folder: Path

    def pids(self, rank: int) -> list[int]:
        """Return the processes that this number has had, the newest last."""
        return [
            entry["pid"]
            for entry in self.logs
            if entry["event"] == "rank_spawned" and entry["rank"] == rank
        ]

    @property
    def spares(self) -> list[int]:
        """Return the spare processes that there have been, the newest last."""
        return [entry["pid"] for entry in self.logs if entry["event"] == "spare_spawned"]

    def signal(self, rank: int, number: int) -> None:
        os.kill(self.pids(rank)[-1], number)

    def count(self, event: str, **fields: Any) -> int:
        return sum(
            entry["event"] == event and fields.items() <= entry.items() for entry in self.logs
        )

    def num_lives(self, rank: int) -> int:
        """Count the processes of this number that have begun to load."""
        return len((self.folder / f"lives-{rank}").read_text())

    async def lost(self) -> RankGroupLost:
        return await asyncio.wait_for(self.group.lost(), WITHIN_S)

    async def next_group(self) -> RankGroup:
        self.group = await asyncio.wait_for(self.supervisor.next_backend(), WITHIN_S)
        return self.group

    async def next_epoch(self) -> RankGroup:
        """Wait for the next group, and see that it computes from an empty state."""
        await self.next_group()
        await self.see_it_run()
        return self.group

    async def see_it_run(self) -> None:
        writer = PlanWriter(block_size=16, epoch=self.group.facts.epoch)
        self.group.submit(writer.plan(prompts={0: [1, 2, 3]}))
        outcome = await asyncio.wait_for(self.group.next_outcome(), WITHIN_S)
        assert outcome.drawn == {0: 6 * 7 + 3}


@asynccontextmanager
async def epochs_of(
    behaviour: str | None = "ok", *, folder: Path, **settings: Any
) -> AsyncIterator[Epochs]:
    """Run them; at the end no process may be left. Without a behaviour the ranks are real."""
    watched = WatchedEpochs()
    usual = {"model_path": folder, "stop_timeout_s": 1.0, "heartbeat_timeout_s": 20.0}
    with structlog.testing.capture_logs() as logs:
        async with running_rank_groups(
            group_settings(**(usual | settings)),
            on_progress=lambda _: None,
            rank_command=RANK_COMMAND if behaviour is None else rank_command(behaviour),
            watcher=watched,
        ) as supervisor:
            group = await supervisor.next_backend()
            yield Epochs(
                supervisor=supervisor, logs=logs, watched=watched, group=group, folder=folder
            )
    spawned = ("rank_spawned", "spare_spawned")
    pids = [entry["pid"] for entry in logs if entry["event"] in spawned]
    assert not any(map(is_alive, pids))
