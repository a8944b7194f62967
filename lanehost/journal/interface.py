"""What door and engine ask of a journal; without `--journal` there is one that knows nothing."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from lanehost.job import Failed, Finished, Job, StopParams
from lanehost.journal.streams import KnownStream


class StreamJournal(Protocol):
    """Keeps what was accepted and what was drawn; the event loop's, and it returns at once."""

    def accept(self, job: Job, stop: StopParams) -> None:
        """Append an accepted job, before its client is told.

        Raises:
            NotJournaled: it cannot be appended.
        """
        ...

    def append(self, drawn: Iterable[tuple[str, Sequence[int]]]) -> None:
        """Append new tokens of jobs, in one write, before any client is told of them."""
        ...

    def end(self, job_id: str, event: Finished | Failed) -> None:
        """Note a job's terminal event; appended with the next write, or by `flush`."""
        ...

    def flush(self) -> None:
        """Append what was noted."""
        ...

    def find(self, job_id: str) -> KnownStream | None:
        """Return what is known of a job."""
        ...


class NoJournal:
    """Implements `StreamJournal`: keeps nothing."""

    def accept(self, job: Job, stop: StopParams) -> None:
        """Keep nothing."""

    def append(self, drawn: Iterable[tuple[str, Sequence[int]]]) -> None:
        """Keep nothing."""

    def end(self, job_id: str, event: Finished | Failed) -> None:
        """Keep nothing."""

    def flush(self) -> None:
        """Keep nothing."""

    def find(self, job_id: str) -> KnownStream | None:
        """Know nothing."""
        del job_id
        return None
