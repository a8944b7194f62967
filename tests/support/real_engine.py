"""The engine over real rank processes: the tiny random model, float32, on one or two."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lanehost.engine.inbox import Drain
from lanehost.engine.observer import NoObserver
from lanehost.job import Failed, Finished, Job
from lanehost.rank_group.supervisor import RANK_COMMAND, running_rank_group
from ranks.plan import StepPlan, StepRefused, StepResult
from tests.support.fake_engine import EngineRig
from tests.support.jobs import make_job, read_all, token_ids
from tests.support.rank_facts import group_settings


class Steps(NoObserver):
    """Notes the steps that were run, those that failed, and what befell jobs."""

    def __init__(self) -> None:
        self.run: list[StepPlan] = []
        self.refused: list[StepRefused] = []
        self.notes: list[tuple[str, str]] = []
        self._changed = asyncio.Event()

    @property
    def passes(self) -> list[int]:
        """How many prompts shared each step that was run, where any did."""
        return [len(plan.chunks) for plan in self.run if plan.chunks]

    def step_ended(self, plan: StepPlan, outcome: StepResult | StepRefused) -> None:
        if isinstance(outcome, StepRefused):
            self.refused.append(outcome)
        else:
            self.run.append(plan)
        self._changed.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for steps to end until something is so."""
        while not is_so():
            self._changed.clear()
            await self._changed.wait()

    def job_yielded(self, job_id: str) -> None:
        self.notes.append(("yielded", job_id))

    def job_parked(self, job_id: str) -> None:
        self.notes.append(("parked", job_id))

    def job_ended(self, job_id: str, event: Finished | Failed, token_ids: Sequence[int]) -> None:
        self.notes.append(("ended", job_id))


class RealEngine(EngineRig):
    """An engine whose backend is a rank group; `ranks`, the fake, is not used."""

    steps: Steps

    @property
    def num_progressed(self) -> int:
        """Lanes that have computed something in this seat."""
        return sum(lane.num_computed_tokens > lane.num_cached_tokens for lane in self.engine.lanes)

    async def run_all(self, jobs: list[Job]) -> list[list[Any]]:
        """Send all at once; what each client was told."""
        return await asyncio.gather(*(read_all(self.send(job)) for job in jobs))


@asynccontextmanager
async def engine_on_ranks(
    model_path: Path,
    *,
    tp: int = 1,
    rank_command: tuple[str, ...] = RANK_COMMAND,
    group: dict[str, Any] | None = None,
    **engine: Any,
) -> AsyncIterator[RealEngine]:
    """Run it; drain it at the end and prove that nothing leaked.

    Args:
        model_path: A checkpoint.
        tp: The number of ranks.
        rank_command: What starts one.
        group: Fields of `RankGroupSettings`.
        engine: What `EngineRig` takes.
    """
    usual = {"dtype": "float32", "device": "cpu", "num_threads": 1, "num_lanes": 4}
    settings = group_settings(model_path=model_path, tp=tp, **(usual | (group or {})))
    starting = running_rank_group(settings, on_progress=lambda _: None, rank_command=rank_command)
    async with starting as ranks:
        steps = Steps()
        rig = RealEngine(ranks.facts, wrap=lambda _: ranks, observer=steps, **engine)
        rig.steps = steps
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(rig.engine.run())
            yield rig
            rig.inbox.put(Drain())
        rig.check_all_free()


async def solo_replies(
    model_path: Path, jobs: list[Job], *, dtype: str = "float32"
) -> list[list[int]]:
    """What each job gives by itself: one lane, no cache, no drafts, ranks that never fail."""
    group = {"num_lanes": 1, "dtype": dtype}
    plain: dict[str, Any] = {"prompt_cache": False, "max_drafts": 0, "group": group}
    replies = []
    async with engine_on_ranks(model_path, **plain) as rig:
        for job in jobs:
            alone = make_job(job.prompt_ids, max_tokens=job.max_tokens, draw=job.draw)
            replies.append(token_ids(await read_all(rig.send(alone))))
    return replies
