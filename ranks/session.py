"""The life of a rank as seen from its stream: Hello, load, then epoch after epoch.

Laws: every plan is answered, with a result or a refusal, until its epoch is over or broken;
what raises outside a step is told to the master as `Fatal` before the process ends, and its
trace is in the log. A fellow that is lost ends the epoch and not this rank: it says `Broken`,
and waits a bounded time for `Leave`. The main thread computes; it waits for work on the
stream, never inside a collective, and Leave wakes it there (ADR 20).

This module knows no torch: what computes is a `Worker`.
"""

import os
import time
from collections.abc import Callable
from typing import Protocol

import grpc
import structlog

from ranks.abort import Abort
from ranks.epochs import Epochs
from ranks.errors import BadOrder, FellowLost, GivenUp, MasterLost, RendezvousFailed, StepBroken
from ranks.heartbeat import beating
from ranks.link import MasterLink
from ranks.plan import StepPlan, StepRefused, StepResult
from ranks.progress import Progress
from ranks.settings import RankSettings
from ranks.wire.file_messages import FileDone, FileOrder
from ranks.wire.image_messages import ImageDone, ImageOrder
from ranks.wire.messages import (
    Broken,
    Fatal,
    Form,
    Hello,
    Leave,
    Left,
    Load,
    Loaded,
    LoadProgress,
    MainMessage,
    Ready,
    Shutdown,
)

log = structlog.get_logger()

EXIT_OK = 0
EXIT_FATAL = 1
EXIT_MASTER_LOST = 3
# From Broken to Leave: the master may have to wait until other ranks are gone.
LEAVE_TIMEOUT_S = 60.0
# A fellow that failed may have been told to leave a moment before this rank.
_GRACE_S = 0.1


class OnProgress(Protocol):
    """Told how far loading is."""

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        """Take bytes done and bytes in all; may be called as often as one likes."""
        ...


class Worker(Protocol):
    """What computes on this rank."""

    def load(self, order: Load, on_progress: OnProgress) -> Loaded:
        """Load this rank's part of the model."""
        ...

    def form(self, order: Form, abort: Abort) -> None:
        """Make the KV pool and meet the other ranks; an abort ends that and later waiting."""
        ...

    def run(self, plan: StepPlan) -> StepResult | StepRefused:
        """Run one plan, or refuse it whole."""
        ...

    def take_file(self, order: FileOrder, answer: Callable[[FileDone], None]) -> None:
        """Have a work on files done beside the steps; returns at once, from any thread."""
        ...

    def take_image(self, order: ImageOrder, answer: Callable[[ImageDone], None]) -> None:
        """Have a work on images done beside the steps; returns at once, from any thread."""
        ...

    def num_stages(self) -> int:
        """Count what was computed so far; never falls, and may be called from any thread."""
        ...

    def leave(self) -> None:
        """Leave the group, if there is one: its lanes are gone, the model stays."""
        ...

    def free(self) -> None:
        """Give back the memory of the group that was left; may take long."""
        ...

    def close(self) -> None:
        """Leave the group; safe at any time."""
        ...


def live(
    settings: RankSettings,
    worker: Worker,
    channel: grpc.Channel,
    *,
    build: str,
    on_lost: Callable[[], None],
    leave_timeout_s: float = LEAVE_TIMEOUT_S,
) -> int:
    """Live on one stream of `channel`, from Hello to the end; returns the exit code.

    `on_lost` is called from another thread when the stream has ended, whatever this one does.
    """
    epochs = Epochs()
    try:
        with MasterLink(
            channel,
            on_leave=epochs.give_up,
            on_file=worker.take_file,
            on_image=worker.take_image,
            on_lost=on_lost,
        ) as link:
            link.send(
                Hello(
                    rank=settings.rank,
                    world_size=settings.world_size,
                    pid=os.getpid(),
                    build=build,
                    token=settings.token,
                )
            )
            life = _Life(link, worker, epochs, rank=settings.rank, leave_timeout_s=leave_timeout_s)
            return life.live()
    except MasterLost as err:
        log.error("master_lost", reason=str(err))  # noqa: TRY400 - an event, not a bug
        return EXIT_MASTER_LOST
    finally:
        worker.close()


class _Life:
    """What follows Hello."""

    def __init__(
        self,
        link: MasterLink,
        worker: Worker,
        epochs: Epochs,
        *,
        rank: int,
        leave_timeout_s: float,
    ) -> None:
        self._link = link
        self._worker = worker
        self._epochs = epochs
        self._rank = rank
        self._leave_timeout_s = leave_timeout_s
        self._progress = Progress(worker.num_stages)
        self._broken_at: float | None = None

    def live(self) -> int:
        """Serve until the end; returns the exit code."""
        try:
            with beating(self._link, self._progress):
                while self._take(self._next()):
                    pass
        except MasterLost:
            raise
        except Exception as err:
            # The outermost border of the rank: nothing that raised may leave the master waiting.
            log.exception("rank_fatal")
            self._link.send(Fatal(message=f"{type(err).__name__}: {err}"))
            return EXIT_FATAL
        return EXIT_OK

    def _next(self) -> MainMessage:
        left_s = None
        if self._broken_at is not None:
            left_s = max(0.0, self._broken_at + self._leave_timeout_s - time.monotonic())
        message = self._link.receive(timeout_s=left_s)
        if message is None:
            raise MasterLost(f"no Leave within {self._leave_timeout_s:g} s of Broken")
        return message

    def _take(self, message: MainMessage) -> bool:
        """Do what the master says; says whether this life goes on."""
        match message:
            case StepPlan() as plan:
                self._run(plan)
            case Load() as order:
                self._link.send(self._worker.load(order, _LoadProgress(self._link)))
            case Form() as order:
                self._form(order)
            case ImageOrder() as order:
                self._worker.take_image(order, self._link.send)
            case Leave(epoch=epoch):
                self._leave(epoch)
            case Shutdown(reason=reason):
                log.info("shutdown", reason=reason)
                return False
        return True

    def _form(self, order: Form) -> None:
        abort = self._epochs.begin(order.epoch)
        try:
            self._worker.form(order, abort)
        except GivenUp:
            log.info("forming_given_up", epoch=order.epoch)
        except FellowLost as err:
            self._break(order.epoch, suspect=err.suspect, reason=str(err))
        except RendezvousFailed as err:
            # The store knows of an epoch that is over before Leave is here.
            self._break(order.epoch, suspect=None, reason=str(err))
        else:
            self._link.send(Ready(epoch=order.epoch))

    def _run(self, plan: StepPlan) -> None:
        if self._epochs.is_over(plan.epoch) or self._broken_at is not None:
            log.debug("plan_dropped", step_id=plan.step_id, epoch=plan.epoch)
            return
        if self._epochs.current is None:
            raise BadOrder(f"a plan of epoch {plan.epoch} came before Form")
        try:
            with self._progress.step(plan.step_id):
                answer = self._worker.run(plan)
        except GivenUp:
            log.info("step_given_up", step_id=plan.step_id, epoch=plan.epoch)
        except FellowLost as err:
            self._break(plan.epoch, suspect=err.suspect, reason=str(err))
        except StepBroken as err:
            # Its fellows are well; what this rank holds may not be.
            self._break(plan.epoch, suspect=self._rank, reason=str(err))
        else:
            if not self._epochs.is_over(plan.epoch):
                self._link.send(answer)

    def _break(self, epoch: int, *, suspect: int | None, reason: str) -> None:
        if self._epochs.abort.wait(_GRACE_S):
            return
        log.warning("epoch_broken", epoch=epoch, suspect=suspect, reason=reason)
        self._link.send(Broken(epoch=epoch, suspect=suspect, reason=reason))
        self._broken_at = time.monotonic()

    def _leave(self, epoch: int) -> None:
        if not self._epochs.end(epoch):
            log.warning("old_leave_ignored", epoch=epoch)
            return
        self._broken_at = None
        self._worker.leave()
        self._link.send(Left(epoch=epoch))
        log.info("epoch_left", epoch=epoch)
        self._worker.free()


class _LoadProgress:
    """Tells the master at most once per percent."""

    def __init__(self, link: MasterLink) -> None:
        self._link = link
        self._told_percent = -1

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        percent = 100 * done_bytes // total_bytes if total_bytes else 100
        if percent != self._told_percent:
            self._told_percent = percent
            self._link.send(LoadProgress(done_bytes=done_bytes, total_bytes=total_bytes))
