"""A worker that answers what a test says, and notes what it was asked."""

import threading

from ranks.errors import GivenUp
from ranks.plan import StepResult
from ranks.wire.file_messages import FileDone, FileFault
from ranks.wire.image_messages import EncodeImage, ImageDone, ImageFault
from tests.support.rank_facts import loaded


class ScriptedWorker:
    """Answers what it was made with; keeps what it was asked."""

    def __init__(self, *, fails_in=""):
        self.fails_in = fails_in
        self.raises = None
        self.image_orders = []
        self.waits = self.num_stages_now = 0
        self.num_closed = self.num_left = self.num_freed = self.num_run = 0
        self.began, self.go_on = threading.Event(), threading.Event()
        self.answer = StepResult(step_id=1, epoch=4, drawn={}, failures={}, digest=bytes(16))

    def load(self, order, on_progress):
        self._fail("load")
        for done in range(1001):
            on_progress(done, 1000)
        return loaded()

    def form(self, order, abort):
        self.abort = abort
        self._fail("form")
        self._act("form")

    def run(self, plan):
        self._fail("run")
        self.num_run += 1
        self._act("run")
        return self.answer

    def _act(self, phase):
        """Wait as a collective does, or compute as a step does, or raise, where it is told to."""
        self.began.set()
        if self.waits == f"for an abort in {phase}":
            assert self.abort.wait(10)
            raise GivenUp("the abort came")
        if self.waits == f"for nothing in {phase}":
            assert self.go_on.wait(10)
        if self.raises is not None:
            raise self.raises

    def take_file(self, order, answer):
        self.file_thread = threading.current_thread()
        answer(FileDone(order_id=order.order_id, epoch=order.epoch, fault=FileFault.TORN))

    def take_image(self, order, answer):
        self.image_orders.append((order.work, threading.current_thread()))
        if isinstance(order.work, EncodeImage):
            answer(
                ImageDone(epoch=order.epoch, image_id=order.work.image_id, fault=ImageFault.BUSY)
            )

    def num_stages(self):
        return self.num_stages_now

    def leave(self):
        self.num_left += 1

    def free(self):
        self.num_freed += 1

    def close(self):
        self.num_closed += 1

    def _fail(self, phase):
        if self.fails_in == phase:
            raise ValueError(f"fails in {phase}")
