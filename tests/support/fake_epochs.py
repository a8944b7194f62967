"""Fake ranks, epoch after epoch."""

import asyncio
from typing import TYPE_CHECKING

from lanehost.errors import RankGroupLost
from tests.support.fake_ranks import FakeRanks

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanehost.engine.backend import Backend
    from ranks.plan import StepPlan


class FakeEpochs:
    """Implements `lanehost.engine.backend.Backends` over fakes, one after the other.

    The next epoch's ranks are there as soon as the last are lost, or, with `is_held`, once
    `release` is called; `turns` says how many turns of the loop that takes. After
    `num_epochs` of them the ranks are given up.
    """

    def __init__(
        self,
        first: FakeRanks,
        *,
        num_epochs: int = 1,
        wrap: "Callable[[Backend], Backend]" = lambda ranks: ranks,
    ) -> None:
        self.all = [first]
        self.num_epochs = num_epochs
        self.is_held = False
        self.turns: Callable[[], int] = lambda: 0
        self.change: Callable[[FakeRanks], FakeRanks] = lambda ranks: ranks
        self._wrap = wrap
        self._released = asyncio.Semaphore(0)

    @property
    def last(self) -> FakeRanks:
        return self.all[-1]

    @property
    def plans(self) -> "list[StepPlan]":
        return [plan for ranks in self.all for plan in ranks.plans]

    def release(self) -> None:
        self._released.release()

    async def next_backend(self) -> "Backend":
        await self.last.until_lost()
        if self.is_held:
            await self._released.acquire()
        for _ in range(self.turns()):
            await asyncio.sleep(0)
        if len(self.all) >= self.num_epochs:
            raise RankGroupLost("given up", epoch=self.last.facts.epoch, rank=0)
        self.all.append(self.change(self.last.successor()))
        return self._wrap(self.last)
