"""The thread of a rank that reads and writes files, beside the one that computes.

Laws: until it is closed every work is answered once, whatever becomes of it, also where none is
done: without a folder, with too many in front of it, or when its epoch is over. What somebody
waits for goes before what is only kept: a save steps aside, between two copies, for anything
else, and ends without a file when its name is dropped. The pool of an epoch is not touched once
`let_go` has returned, and that takes no longer than one copy.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from ranks.abort import Abort
from ranks.disk.file_works import Done, FileWorks
from ranks.disk.folder import Folder
from ranks.disk.snapshot import PoolGone, PoolLoan
from ranks.errors import MasterLost
from ranks.models.state import StateTensor
from ranks.wire.file_messages import (
    DropFile,
    FileDone,
    FileFault,
    FileName,
    FileOrder,
    FileWork,
    SaveFile,
)

log = structlog.get_logger()

# The master bounds what it asks for as well, and lower.
MAX_WAITING = 64
_END_TIMEOUT_S = 2.0

Answer = Callable[[FileDone], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Epoch:
    """What works of one epoch need."""

    number: int
    abort: Abort
    loan: PoolLoan
    works: FileWorks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    order: FileOrder
    answer: Answer


class FileThread:
    """Begins with the first epoch that has a folder."""

    def __init__(self, *, rank: int, world_size: int) -> None:
        """Start nothing yet."""
        self._rank = rank
        self._world_size = world_size
        self._changed = threading.Condition()
        self._urgent: deque[_Asked] = deque()
        self._saves: deque[_Asked] = deque()
        self._epoch: _Epoch | None = None
        # Of epochs that are over: the thread closes their files.
        self._over: list[FileWorks] = []
        self._thread: threading.Thread | None = None
        self._is_ending = False

    def begin(
        self,
        epoch: int,
        folder: Folder,
        state: tuple[StateTensor, ...],
        loan: PoolLoan,
        abort: Abort,
    ) -> None:
        """Do works of this epoch from now on, until the abort or `let_go`; touches no disk."""
        works = FileWorks(folder, state, loan, rank=self._rank, world_size=self._world_size)
        with self._changed:
            self._epoch = _Epoch(number=epoch, abort=abort, loan=loan, works=works)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="files", daemon=True)
                self._thread.start()

    def take(self, order: FileOrder, answer: Answer) -> None:
        """Have a work done; returns at once, and `answer` is called from some thread."""
        asked = _Asked(order=order, answer=answer)
        if isinstance(order.work, DropFile):
            self._drop_save(order.work.name)
        with self._changed:
            if self._thread is None or self._is_ending:
                refusal = Done(fault=FileFault.GONE, message="this rank has no folder for files")
            elif len(self._urgent) + len(self._saves) >= MAX_WAITING:
                refusal = Done(fault=FileFault.BUSY, message=f"{MAX_WAITING} works wait")
            else:
                (self._saves if isinstance(order.work, SaveFile) else self._urgent).append(asked)
                self._changed.notify()
                return
        _tell(asked, refusal, took_ns=0)

    def _drop_save(self, name: FileName) -> None:
        """Answer saves of an entry that have not begun: nothing is to come of them."""
        with self._changed:
            dropped = [one for one in self._saves if _saved_name(one.order.work) == name]
            for asked in dropped:
                self._saves.remove(asked)
        for asked in dropped:
            _tell(asked, Done(fault=FileFault.BUSY, message="it was given up"), took_ns=0)

    def let_go(self) -> None:
        """Let go of the epoch's pool; waits for the copy that is under way."""
        with self._changed:
            epoch, self._epoch = self._epoch, None
            if epoch is not None:
                self._over.append(epoch.works)
                self._changed.notify()
        if epoch is not None:
            epoch.loan.take_back()

    def close(self) -> None:
        """End the thread, after the work that it does; waits a bounded time."""
        self.let_go()
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_END_TIMEOUT_S)

    def _run(self) -> None:
        try:
            while (asked := self._next()) is not None:
                if isinstance(asked, FileWorks):
                    asked.close()
                else:
                    self._do(asked)
        except MasterLost as err:
            # The main thread hears of it too.
            log.debug("files_end", reason=str(err))

    def _next(self) -> _Asked | FileWorks | None:
        with self._changed:
            while self._over or not self._is_ending:
                if self._over:
                    return self._over.pop()
                if self._urgent:
                    return self._urgent.popleft()
                if self._saves:
                    return self._saves.popleft()
                self._changed.wait()
        return None

    def _next_urgent(self) -> _Asked | None:
        with self._changed:
            return self._urgent.popleft() if self._urgent else None

    def _do(self, asked: _Asked) -> None:
        began_ns = time.perf_counter_ns()
        done = self._try(asked.order)
        _tell(asked, done, took_ns=time.perf_counter_ns() - began_ns)

    def _try(self, order: FileOrder) -> Done:
        epoch = self._epoch
        if epoch is None or epoch.number != order.epoch:
            return Done(fault=FileFault.GONE, message=f"epoch {order.epoch} is over")
        is_save = isinstance(order.work, SaveFile)

        def between() -> None:
            if epoch.abort.is_set or self._is_ending:
                raise PoolGone
            while is_save and (urgent := self._next_urgent()) is not None:
                self._do(urgent)

        try:
            return epoch.works.do(order, between)
        except Exception as err:
            # The outermost border of this thread: no file is worth a rank.
            log.exception("file_work_failed", order_id=order.order_id)
            return Done(fault=FileFault.IO, message=f"{type(err).__name__}: {err}")


def _saved_name(work: FileWork) -> FileName | None:
    return work.header.name if isinstance(work, SaveFile) else None


def _tell(asked: _Asked, done: Done, *, took_ns: int) -> None:
    asked.answer(
        FileDone(
            order_id=asked.order.order_id,
            epoch=asked.order.epoch,
            fault=done.fault,
            message=done.message,
            num_bytes=done.num_bytes,
            took_ns=took_ns,
        )
    )
