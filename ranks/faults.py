"""A rank that fails on purpose, for `lanehost chaos`; never there unless its variable is set.

Orders (`fault_orders`) are files: each is taken once, at the point that it names, and said in
the log before it is done. Between such a rank and its master stands a relay in this process,
so that its stream can be cut as a network cuts one: nothing arrives, and nothing is closed.
"""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import structlog
import torch

from ranks.abort import Abort
from ranks.fault_orders import Act, Point, order_file
from ranks.plan import StepPlan, StepRefused, StepResult
from ranks.session import OnProgress, Worker
from ranks.settings import RankSettings
from ranks.wire.file_messages import FileDone, FileOrder
from ranks.wire.image_messages import ImageDone, ImageOrder
from ranks.wire.messages import Form, Load, Loaded

log = structlog.get_logger()

_LOOK_S = 0.02
_CHUNK_BYTES = 1 << 16
_BY_PROCESS = (Act.STOP, Act.KILL, Act.PARTITION)


class Injected(Exception):
    """Raised on purpose; nothing knows how to survive it."""


class Orders:
    """Takes the orders of one rank."""

    def __init__(self, folder: Path, rank: int, *, cut: Callable[[], None]) -> None:
        """Look into a folder; `cut` partitions this rank from its master."""
        self._path = order_file(folder, rank)
        self._cut = cut

    def take(self, *points: Point, fed: frozenset[int] = frozenset()) -> Act | None:
        """Take the order for one of these points, if there is one, and say so in the log.

        What a process does to itself is done here; all else is the caller's to do.
        """
        try:
            words = self._path.read_text(encoding="utf-8").split()
        except OSError:
            return None
        name, _, token = words[0].partition("=")
        act, point = Act(name), Point(words[1])
        if act is Act.POISON:
            if int(token) not in fed:
                return None
        elif point in points:
            self._path.unlink(missing_ok=True)
        else:
            return None
        log.warning("fault_injected", fault=act.value, point=point.value)
        self._do(act)
        return act

    def _do(self, act: Act) -> None:
        match act:
            case Act.KILL | Act.POISON:
                os.kill(os.getpid(), signal.SIGKILL)
            case Act.STOP:
                os.kill(os.getpid(), signal.SIGSTOP)
            case Act.PARTITION:
                self._cut()
            case _:
                pass

    def watch(self) -> None:
        """Take orders that are to be done at once, for ever: the body of a thread."""
        while True:
            time.sleep(_LOOK_S)
            self.take(Point.NOW)


class FaultyModel:
    """A model that fails in a pass or an image as ordered; all else is the model's own.

    `act` is done in the next forward pass, `slice_act` in the next slice of a staged one.
    """

    def __init__(self, model: Any, orders: Orders) -> None:
        """Wrap a model that has loaded."""
        self._model = model
        self._orders = orders
        self.act: Act | None = None
        self.slice_act: Act | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, inputs: Any, kv: Any, collective: Any) -> torch.Tensor | None:
        """Run one step, or fail in it."""
        act, self.act = self.act, None
        _fail_before(act)
        logits: torch.Tensor | None = self._model.forward(inputs, kv, collective)
        if logits is not None and act is Act.NAN:
            logits[0] = float("nan")
        if act is Act.SHAPE:
            if logits is None:
                raise Injected("a tensor of a wrong shape")
            return logits[:-1]
        return logits

    def run_layers(self, state: Any, first: int, stop: int, kv: Any, collective: Any) -> None:
        """Run a slice of a staged pass, or fail in it."""
        act, self.slice_act = self.slice_act, None
        _fail_before(act)
        self._model.run_layers(state, first, stop, kv, collective)
        if act is Act.NAN:
            state.x[0] = float("nan")
        if act is Act.SHAPE:
            state.x = state.x[:-1]

    def encode_image(self, pixels: torch.Tensor) -> torch.Tensor:
        """Encode an image, or fail in it."""
        act = self._orders.take(Point.ENCODE)
        _fail_before(act)
        rows: torch.Tensor = self._model.encode_image(pixels)
        if act is Act.NAN:
            rows = rows * float("nan")
        return rows[:-1] if act is Act.SHAPE else rows


def _fail_before(act: Act | None) -> None:
    """Fail as a rank does for want of memory, by a bug, or by never coming back."""
    if act is Act.OOM:
        raise MemoryError("out of memory on purpose")
    if act is Act.RAISE:
        raise Injected("raised on purpose")
    if act is Act.STUCK:
        _hang()


def _hang() -> NoReturn:
    while True:
        signal.pause()


class FaultyWorker:
    """A worker that fails as ordered; implements `Worker`."""

    def __init__(self, worker: Worker, orders: Orders, models: list[FaultyModel]) -> None:
        """Wrap a worker; `models` gets its model once it has loaded."""
        self._worker = worker
        self._orders = orders
        self._models = models

    def load(self, order: Load, on_progress: OnProgress) -> Loaded:
        """Load, or fail in it."""
        _fail_before(self._orders.take(Point.LOAD))
        return self._worker.load(order, on_progress)

    def form(self, order: Form, abort: Abort) -> None:
        """Form the group, or fail in it."""
        _fail_before(self._orders.take(Point.FORM))
        self._worker.form(order, abort)

    def run(self, plan: StepPlan) -> StepResult | StepRefused:
        """Run a plan, whose forward pass may fail."""
        act = self._orders.take(*points_of(plan), fed=_fed(plan))
        slice_act = None if plan.staged is None else self._orders.take(Point.STAGED)
        for model in self._models:
            model.act, model.slice_act = act, slice_act
        return self._worker.run(plan)

    def take_file(self, order: FileOrder, answer: Callable[[FileDone], None]) -> None:
        """Have a work on files done."""
        self._worker.take_file(order, answer)

    def take_image(self, order: ImageOrder, answer: Callable[[ImageDone], None]) -> None:
        """Have a work on images done."""
        self._worker.take_image(order, answer)

    def num_stages(self) -> int:
        """Count what was computed so far."""
        return self._worker.num_stages()

    def leave(self) -> None:
        """Leave the group."""
        self._worker.leave()

    def free(self) -> None:
        """Free what the group had."""
        self._worker.free()

    def close(self) -> None:
        """Leave the group."""
        self._worker.close()


def points_of(plan: StepPlan) -> tuple[Point, ...]:
    """Say which points a step is."""
    if len(plan.chunks) > 1:
        return Point.PASS, Point.STEP
    if plan.chunks:
        return Point.PREFILL, Point.STEP
    return (Point.DECODE, Point.STEP) if plan.decodes else ()


def _fed(plan: StepPlan) -> frozenset[int]:
    staged = plan.staged.chunks if plan.staged is not None else ()
    chunks = (*plan.chunks, *staged)
    return frozenset(token_id for chunk in chunks for token_id in chunk.token_ids)


class Relay:
    """Stands between this rank and its master, and carries bytes until it is cut."""

    def __init__(self, master: str) -> None:
        """Listen on loopback; `address` is what the rank is to dial instead."""
        host, _, port = master.rpartition(":")
        self._master = host.strip("[]"), int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._may_carry = threading.Event()
        self._may_carry.set()
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Carry nothing any more, either way; nothing is closed."""
        self._may_carry.clear()

    def _accept(self) -> None:
        while True:
            inner, _ = self._listener.accept()
            outer = socket.create_connection(self._master)
            for source, sink in ((inner, outer), (outer, inner)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK_BYTES):
                self._may_carry.wait()
                sink.sendall(chunk)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Faults:
    """All of it for one rank: the relay, the orders, the wrapped worker."""

    def __init__(self, folder: str, settings: RankSettings) -> None:
        """Stand ready; says in the log that this rank fails on purpose."""
        log.warning("faults_armed", folder=folder)
        self._relay = Relay(settings.master)
        self._orders = Orders(Path(folder), settings.rank, cut=self._relay.cut)
        self._models: list[FaultyModel] = []
        threading.Thread(target=self._orders.watch, daemon=True).start()

    @property
    def master(self) -> str:
        """What the rank dials."""
        return self._relay.address

    def dress(self, model: Any) -> Any:
        """Wrap a model that has loaded."""
        self._models.append(FaultyModel(model, self._orders))
        return self._models[-1]

    def wrap(self, worker: Worker) -> FaultyWorker:
        """Wrap the worker."""
        return FaultyWorker(worker, self._orders, self._models)
