"""The events of one job, from the engine to whoever reads them.

Laws: events come in the order of `lanehost.job`; the terminal one comes once and last.
The engine never waits for a reader: what a slow one leaves lying is bounded by the
job's own most tokens, and the number of open streams is bounded by the door.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

from lanehost.job import Event, Failed, Finished


class JobStream:
    """One job's events: the engine puts, one reader takes.

    Used as `async with stream:`; leaving the block before the terminal event was put
    cancels the job, whatever the reason for leaving.
    """

    def __init__(self, job_id: str, *, on_cancel: Callable[[str], None]) -> None:
        """Begin empty.

        Args:
            job_id: The job whose events these are.
            on_cancel: Called with the job's id when the reader gives up before the end.
        """
        self.job_id = job_id
        self._on_cancel = on_cancel
        self._on_closed: list[Callable[[], None]] = []
        self._events: deque[Event] = deque()
        self._is_ended = False
        self._is_cancelled = False
        self._is_closed = False
        self._arrived = asyncio.Event()

    def __repr__(self) -> str:
        return f"<JobStream {self.job_id} {len(self._events)} unread ended={self._is_ended}>"

    @property
    def is_ended(self) -> bool:
        """Whether the terminal event was put."""
        return self._is_ended

    def put(self, event: Event) -> None:
        """Add an event; the engine's side."""
        assert not self._is_ended, f"{event!r} after the end of {self.job_id}"
        self._is_ended = isinstance(event, Finished | Failed)
        self._events.append(event)
        self._arrived.set()

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Call back once the reader has left."""
        self._on_closed.append(callback)

    def cancel(self) -> None:
        """Ask for the job's end; does nothing when it has ended or was asked before."""
        if not self._is_ended and not self._is_cancelled:
            self._is_cancelled = True
            self._on_cancel(self.job_id)

    async def __aenter__(self) -> Self:
        """Read the stream; its end gives everything back."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancel the job if it has not ended, and give the stream's place back."""
        self.cancel()
        if not self._is_closed:
            self._is_closed = True
            for callback in self._on_closed:
                callback()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yield every event once, the terminal one last."""
        while True:
            while self._events:
                event = self._events.popleft()
                yield event
                if isinstance(event, Finished | Failed):
                    return
            self._arrived.clear()
            await self._arrived.wait()


class UnreadStream(JobStream):
    """The stream of a job that goes on for whoever will resume it: nobody reads what is put."""

    def __init__(self, job_id: str) -> None:
        """Begin, with nobody who could give up."""
        super().__init__(job_id, on_cancel=lambda _: None)

    def put(self, event: Event) -> None:
        """Keep nothing but whether it was the end."""
        super().put(event)
        self._events.clear()
