"""How one thread tells another to give up what it waits for.

Law: what is to be called on an abort is called exactly once, or it has been taken back, and
who has taken it back is sure that it does not run any more.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Abort:
    """Given up once, from any thread; an epoch of a rank has one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given = threading.Event()
        self._calls: list[Callable[[], None]] = []

    @property
    def is_set(self) -> bool:
        """Whether it was told to give up."""
        return self._given.is_set()

    def set(self) -> None:
        """Call all that is to be called; the calls must neither wait nor raise."""
        with self._lock:
            if self._given.is_set():
                return
            self._given.set()
            for call in self._calls:
                call()

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is told to give up; says whether it was."""
        return self._given.wait(timeout_s)

    @contextmanager
    def calling(self, call: Callable[[], None]) -> Iterator[None]:
        """Within this, an abort makes this call; at once, if it was told already."""
        with self._lock:
            if self._given.is_set():
                call()
            self._calls.append(call)
        try:
            yield
        finally:
            with self._lock:
                self._calls.remove(call)
