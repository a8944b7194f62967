"""Which epoch this rank is in, as the master's words say (ADR 20).

Laws: epochs only rise; there is one at a time. The thread of the link gives an epoch up as
soon as it reads Leave; the main thread ends it when it comes to that word in its turn. What
lies between the two is for an epoch that is over.
"""

import threading

from ranks.abort import Abort
from ranks.errors import BadOrder


class Epochs:
    """Of one rank; `give_up` and `is_over` may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._given_up = 0
        self._current: int | None = None
        self._abort = Abort()

    def __repr__(self) -> str:
        """Show where this rank is."""
        return f"<Epochs in {self._current}, last {self._last}, given up {self._given_up}>"

    @property
    def current(self) -> int | None:
        """The epoch that is formed or is being formed."""
        return self._current

    @property
    def abort(self) -> Abort:
        """What gives up the current epoch, or the last one."""
        return self._abort

    def begin(self, epoch: int) -> Abort:
        """Enter an epoch; what comes back is set once the epoch is over.

        Raises:
            BadOrder: This rank has not left the one before, or has known a later one.
        """
        if self._current is not None:
            raise BadOrder(f"Form of epoch {epoch} came, this rank is in epoch {self._current}")
        if epoch <= self._last:
            raise BadOrder(f"Form of epoch {epoch} came, this rank has known epoch {self._last}")
        with self._lock:
            self._current = self._last = epoch
            self._abort = Abort()
            is_over = epoch <= self._given_up
        if is_over:
            self._abort.set()
        return self._abort

    def give_up(self, epoch: int) -> None:
        """Abort what is done for this epoch and earlier ones, now or when it begins."""
        with self._lock:
            self._given_up = max(self._given_up, epoch)
            abort = self._abort
            is_old = self._current is None or self._current > epoch
        if not is_old:
            abort.set()

    def is_over(self, epoch: int) -> bool:
        """Whether the master has said that this epoch is over."""
        with self._lock:
            return epoch <= self._given_up

    def end(self, epoch: int) -> bool:
        """Leave an epoch; says whether that is due, and not said of one that is long over."""
        if epoch < self._last:
            return False
        with self._lock:
            self._current, self._last = None, epoch
        return True
