"""The life of a rank as seen from its stream: Hello, load, form, then plan after plan.

Laws: every plan is answered, with a result or a refusal; what raises is told to the
master as `Fatal` before the process ends, and its trace is in the log. The main thread
computes; it waits for work on the stream, never inside a collective.

This module knows no torch: what computes is a `Worker`.
"""

import os
from typing import Protocol

import grpc
import structlog

from ranks.errors import MasterLost
from ranks.link import MasterLink
from ranks.plan import StepPlan, StepRefused, StepResult
from ranks.settings import RankSettings
from ranks.wire.messages import (
    Fatal,
    Form,
    Hello,
    Leave,
    Left,
    Load,
    Loaded,
    LoadProgress,
    Ready,
    Shutdown,
)

log = structlog.get_logger()

EXIT_OK = 0
EXIT_FATAL = 1
EXIT_MASTER_LOST = 3


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

    def form(self, order: Form) -> None:
        """Make the KV pool and meet the other ranks."""
        ...

    def run(self, plan: StepPlan) -> StepResult | StepRefused:
        """Run one plan, or refuse it whole."""
        ...

    def leave(self) -> None:
        """Leave the group, if there is one: its lanes and its KV are gone, the model stays."""
        ...

    def close(self) -> None:
        """Leave the group; safe at any time."""
        ...


def live(settings: RankSettings, worker: Worker, channel: grpc.Channel, *, build: str) -> int:
    """Live on one stream of `channel`, from Hello to the end; returns the exit code."""
    try:
        with MasterLink(channel) as link:
            return _live_on(link, settings, worker, build)
    except MasterLost as err:
        log.error("master_lost", reason=str(err))  # noqa: TRY400 - an event, not a bug
        return EXIT_MASTER_LOST
    finally:
        worker.close()


def _live_on(link: MasterLink, settings: RankSettings, worker: Worker, build: str) -> int:
    link.send(
        Hello(
            rank=settings.rank,
            world_size=settings.world_size,
            pid=os.getpid(),
            build=build,
            token=settings.token,
        )
    )
    try:
        _serve(link, worker)
    except MasterLost:
        raise
    except Exception as err:
        # The outermost border of the rank: nothing that raised may leave the master waiting.
        log.exception("rank_fatal")
        link.send(Fatal(message=f"{type(err).__name__}: {err}"))
        return EXIT_FATAL
    return EXIT_OK


def _serve(link: MasterLink, worker: Worker) -> None:
    while True:
        match link.receive():
            case StepPlan() as plan:
                link.send(worker.run(plan))
            case Load() as order:
                link.send(worker.load(order, _Progress(link)))
            case Form() as order:
                worker.form(order)
                link.send(Ready(epoch=order.epoch))
            case Leave(epoch=epoch):
                worker.leave()
                link.send(Left(epoch=epoch))
            case Shutdown(reason=reason):
                log.info("shutdown", reason=reason)
                return


class _Progress:
    """Tells the master at most once per percent."""

    def __init__(self, link: MasterLink) -> None:
        self._link = link
        self._told_percent = -1

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        percent = 100 * done_bytes // total_bytes if total_bytes else 100
        if percent != self._told_percent:
            self._told_percent = percent
            self._link.send(LoadProgress(done_bytes=done_bytes, total_bytes=total_bytes))
