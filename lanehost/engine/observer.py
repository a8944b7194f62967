"""Who is told what becomes of jobs and steps: the recorder, the metrics, or nobody.

Laws: the engine's loop calls it, so an observer returns at once and never raises. What
is told of one job begins with its arrival and ends with its end; what is told of one
step begins with its plan, and it may never end: when the ranks are lost, so are the
steps in flight.
"""

from collections.abc import Sequence
from typing import Protocol

from lanehost.job import Failed, Finished, Job
from ranks.plan import StepPlan, StepRefused, StepResult


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
        """Take note that a job gave up its lane to one of higher priority; it goes on later."""
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
