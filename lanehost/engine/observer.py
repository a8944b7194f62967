"""Who is told what becomes of jobs: the recorder, or nobody.

Law: the engine's loop calls it, so an observer returns at once and never raises.
"""

from collections.abc import Sequence
from typing import Protocol

from lanehost.job import Failed, Finished, Job


class EngineObserver(Protocol):
    """Is told of each job's arrival, its seatings and its end, in the order of the loop."""

    def job_arrived(self, job: Job) -> None:
        """Take note of a job that joined the line."""
        ...

    def job_seated(self, job_id: str, lane_id: int, num_cached_tokens: int) -> None:
        """Take note that a job took a lane, before any plan has the lane join.

        A job that had to give its lane back is seated more than once.
        """
        ...

    def job_ended(self, job_id: str, event: Finished | Failed, token_ids: Sequence[int]) -> None:
        """Take note of a job's terminal event, and of all tokens of its reply."""
        ...


class NoObserver:
    """Implements `EngineObserver`: takes no note."""

    def job_arrived(self, job: Job) -> None:
        """Take no note."""

    def job_seated(self, job_id: str, lane_id: int, num_cached_tokens: int) -> None:
        """Take no note."""

    def job_ended(self, job_id: str, event: Finished | Failed, token_ids: Sequence[int]) -> None:
        """Take no note."""
