"""Who is told what becomes of jobs and steps: the recorder, the metrics, or nobody.

Laws: the engine's loop calls it, so an observer returns at once and never raises. What
is told of one job begins with its arrival and ends with its end; what is told of one
step begins with its plan, and it may never end: when the ranks are lost, so are the
steps in flight, and the lanes are free.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from lanehost.errors import RankGroupLost
from lanehost.fault import record_fault
from lanehost.job import Failed, Finished, Job
from ranks.plan import StepPlan, StepRefused, StepResult

log = structlog.get_logger()


class EngineObserver(Protocol):
    """Is told of jobs and steps, in the order of the loop."""

    def job_arrived(self, job: Job) -> None:
        """Take note of a job that joined the line."""
        ...

    def job_seated(self, job_id: str, lane_id: int, num_cached_tokens: int) -> None:
        """Take note that a job took a lane, before any plan has the lane join.

        A job that had to give its lane back is seated more than once.
        """
        ...

    def job_parked(self, job_id: str) -> None:
        """Take note that a job gave up its lane for want of blocks; it is seated again later."""
        ...

    def job_yielded(self, job_id: str) -> None:
        """Take note that a job gave up its lane to another that goes first; it goes on later."""
        ...

    def job_ended(self, job_id: str, event: Finished | Failed, token_ids: Sequence[int]) -> None:
        """Take note of a job's terminal event, and of all tokens of its reply."""
        ...

    def step_planned(self, plan: StepPlan) -> None:
        """Take note of a plan that was handed to the ranks."""
        ...

    def step_ended(self, plan: StepPlan, outcome: StepResult | StepRefused) -> None:
        """Take note of what a step gave, or that it was not run.

        It is told before anything that follows from it: a job that this step ends has its
        `job_ended` later, and a lane that is free by it is taken later.
        """
        ...

    def lane_alone(self, lane_id: int) -> None:
        """Take note that a lane runs alone, since a step of several failed."""
        ...

    def group_lost(self, lost: RankGroupLost) -> None:
        """Take note that an epoch has ended: nothing comes of the steps in flight.

        Then each job that had a lane is carried or has its end.
        """
        ...

    def job_carried(self, job_id: str) -> None:
        """Take note that a job lost its lane with the group; it goes on in the next epoch."""
        ...

    def group_formed(self, epoch: int) -> None:
        """Take note that the next epoch has begun, with lanes that are free."""
        ...


class NoObserver:
    """Implements `EngineObserver`: takes no note."""

    def job_arrived(self, job: Job) -> None:
        """Take no note."""

    def job_seated(self, job_id: str, lane_id: int, num_cached_tokens: int) -> None:
        """Take no note."""

    def job_parked(self, job_id: str) -> None:
        """Take no note."""

    def job_yielded(self, job_id: str) -> None:
        """Take no note."""

    def job_ended(self, job_id: str, event: Finished | Failed, token_ids: Sequence[int]) -> None:
        """Take no note."""

    def step_planned(self, plan: StepPlan) -> None:
        """Take no note."""

    def step_ended(self, plan: StepPlan, outcome: StepResult | StepRefused) -> None:
        """Take no note."""

    def lane_alone(self, lane_id: int) -> None:
        """Take no note."""

    def group_lost(self, lost: RankGroupLost) -> None:
        """Take no note."""

    def job_carried(self, job_id: str) -> None:
        """Take no note."""

    def group_formed(self, epoch: int) -> None:
        """Take no note."""


class Observers:
    """Implements `EngineObserver`: tells several, in order.

    A fault of one harms no reply and no other: it is logged, and that one is told nothing
    more, since what it was told does not hang together any longer.
    """

    def __init__(self, *observers: EngineObserver) -> None:
        """Tell these."""
        self._observers = observers
        self._num_failed = 0

    def __repr__(self) -> str:
        return f"<Observers {self._observers!r} failed={self._num_failed}>"

    @property
    def num_failed(self) -> int:
        """Observers that failed and are told nothing more."""
        return self._num_failed

    def job_arrived(self, job: Job) -> None:
        """Tell all."""
        self._tell(lambda one: one.job_arrived(job))

    def job_seated(self, job_id: str, lane_id: int, num_cached_tokens: int) -> None:
        """Tell all."""
        self._tell(lambda one: one.job_seated(job_id, lane_id, num_cached_tokens))

    def job_parked(self, job_id: str) -> None:
        """Tell all."""
        self._tell(lambda one: one.job_parked(job_id))

    def job_yielded(self, job_id: str) -> None:
        """Tell all."""
        self._tell(lambda one: one.job_yielded(job_id))

    def job_ended(self, job_id: str, event: Finished | Failed, token_ids: Sequence[int]) -> None:
        """Tell all."""
        self._tell(lambda one: one.job_ended(job_id, event, token_ids))

    def step_planned(self, plan: StepPlan) -> None:
        """Tell all."""
        self._tell(lambda one: one.step_planned(plan))

    def step_ended(self, plan: StepPlan, outcome: StepResult | StepRefused) -> None:
        """Tell all."""
        self._tell(lambda one: one.step_ended(plan, outcome))

    def lane_alone(self, lane_id: int) -> None:
        """Tell all."""
        self._tell(lambda one: one.lane_alone(lane_id))

    def group_lost(self, lost: RankGroupLost) -> None:
        """Tell all."""
        self._tell(lambda one: one.group_lost(lost))

    def job_carried(self, job_id: str) -> None:
        """Tell all."""
        self._tell(lambda one: one.job_carried(job_id))

    def group_formed(self, epoch: int) -> None:
        """Tell all."""
        self._tell(lambda one: one.group_formed(epoch))

    def _tell(self, tell: Callable[[EngineObserver], None]) -> None:
        for observer in self._observers:
            try:
                tell(observer)
            except Exception as bug:  # noqa: BLE001 - the border to who looks on: no reply is harmed
                self._drop(observer, bug)

    def _drop(self, observer: EngineObserver, bug: Exception) -> None:
        self._observers = tuple(one for one in self._observers if one is not observer)
        self._num_failed += 1
        record_id = record_fault(bug).record_id
        log.error("observer_failed", observer=type(observer).__name__, record_id=record_id)
