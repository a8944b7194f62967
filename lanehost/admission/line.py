"""The waiting line: bounded in requests and in tokens, first come first served.

Laws: a full line refuses at once and keeps nothing; what was refused leaves no trace;
a place is held from the moment of the promise, so that work done before a request is
ready (rendering, tokenizing) is bounded by the same line.
"""

from collections import OrderedDict

from lanehost.errors import Overloaded
from lanehost.job import Job
from lanehost.settings import LineSettings


class Line:
    """Jobs that wait for a lane, and places promised to requests that are being prepared.

    Owned by the event loop: the door adds, the engine takes.
    """

    def __init__(self, settings: LineSettings) -> None:
        """Begin with an empty line under the given bounds."""
        self._settings = settings
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._num_promised = 0
        self._num_tokens = 0

    def __repr__(self) -> str:
        return f"<Line {len(self._jobs)} jobs, {self._num_promised} promised>"

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def num_tokens(self) -> int:
        """Prompt tokens that wait."""
        return self._num_tokens

    def promise(self) -> None:
        """Hold a place for a request that is being prepared.

        Raises:
            Overloaded: as many requests wait or are promised as may.
        """
        limit = self._settings.max_waiting
        have = len(self._jobs) + self._num_promised
        if have >= limit:
            raise Overloaded(
                f"{have} requests wait, limit {limit} (--max-waiting)",
                retry_after_s=self._settings.retry_after_s,
            )
        self._num_promised += 1

    def withdraw(self) -> None:
        """Give up a promised place."""
        assert self._num_promised > 0, "no place was promised"
        self._num_promised -= 1

    def join(self, job: Job) -> None:
        """Put a job on its promised place, at the end of the line.

        Raises:
            Overloaded: its tokens are too many for now; the place is given up.
        """
        self.withdraw()
        limit = self._settings.max_waiting_tokens
        have = self._num_tokens + len(job.prompt_ids)
        # A job alone may pass the bound: it fits the pool, or the door had refused it.
        if self._jobs and have > limit:
            raise Overloaded(
                f"{have} prompt tokens would wait, limit {limit} (--max-waiting-tokens)",
                retry_after_s=self._settings.retry_after_s,
            )
        self._jobs[job.job_id] = job
        self._num_tokens += len(job.prompt_ids)

    def head(self) -> Job | None:
        """Return the job whose turn it is, without taking it."""
        return next(iter(self._jobs.values()), None)

    def take(self, job_id: str) -> Job | None:
        """Take a job out of the line, wherever it stands; None when it does not wait."""
        job = self._jobs.pop(job_id, None)
        if job is not None:
            self._num_tokens -= len(job.prompt_ids)
        return job
