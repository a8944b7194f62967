"""SIGTERM and SIGINT: the first asks for an orderly end, the second for an end now."""

import asyncio
import signal
from collections.abc import Callable
from types import TracebackType
from typing import Self

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Calls back at the first and at every later signal, while the block lasts."""

    def __init__(self, *, on_first: Callable[[], None], on_second: Callable[[], None]) -> None:
        """Do nothing until the block is entered.

        Args:
            on_first: Called at the first signal.
            on_second: Called at every later one.
        """
        self._on_first = on_first
        self._on_second = on_second
        self._num_received = 0

    @property
    def num_received(self) -> int:
        """How many signals came."""
        return self._num_received

    def __enter__(self) -> Self:
        """Take the signals over; inside a running loop of the main thread."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._receive)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give the signals back."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def _receive(self) -> None:
        self._num_received += 1
        if self._num_received == 1:
            self._on_first()
        else:
            self._on_second()
