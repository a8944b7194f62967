"""The life of a rank, with a worker of any kind: every plan answered, every fault told."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from ranks.link import open_channel
from ranks.plan import StepPlan, StepRefused, StepResult
from ranks.session import EXIT_FATAL, EXIT_MASTER_LOST, EXIT_OK, live
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
from tests.support.rank_facts import loaded
from tests.support.scripted_master import scripted_master

LOAD = Load(
    model_path="m", dtype="auto", weights="auto", device="cpu", num_threads=None, block_size=16,
    max_step_tokens=64, num_lanes=2,
)  # fmt: skip
FORM = Form(
    epoch=4, num_blocks=2, block_size=16, num_lanes=1, max_step_tokens=8, collective_timeout_s=5
)
PLAN = StepPlan(step_id=1, epoch=4, digest=bytes(16))


class ScriptedWorker:
    """Answers what it was made with; keeps what it was asked."""

    def __init__(self, *, fails_in=""):
        self.fails_in = fails_in
        self.num_closed = self.num_left = 0
        self.answer = StepResult(step_id=1, epoch=4, drawn={}, failures={}, digest=bytes(16))

    def load(self, order, on_progress):
        self._fail("load")
        for done in range(1001):
            on_progress(done, 1000)
        return loaded()

    def form(self, order):
        self._fail("form")

    def run(self, plan):
        self._fail("run")
        return self.answer

    def leave(self):
        self.num_left += 1

    def close(self):
        self.num_closed += 1

    def _fail(self, phase):
        if self.fails_in == phase:
            raise ValueError(f"fails in {phase}")


@pytest.fixture
def master():
    with scripted_master() as master:
        yield master


def start(master, worker, pool):
    settings = RankSettings(master=master.address, rank=1, world_size=2, death_fd=0, token="secret")

    def act():
        with open_channel(master.address) as channel:
            return live(settings, worker, channel, build="1.0")

    return pool.submit(act)


def test_a_life_from_hello_to_shutdown(master):
    worker = ScriptedWorker()
    with ThreadPoolExecutor(1) as pool:
        life = start(master, worker, pool)
        hello = master.hear()
        assert isinstance(hello, Hello)
        assert (hello.rank, hello.world_size, hello.build, hello.token) == (1, 2, "1.0", "secret")
        master.say(LOAD)
        heard = []
        while not heard or isinstance(heard[-1], LoadProgress):
            heard.append(master.hear())
        assert isinstance(heard[-1], Loaded)
        assert len(heard) <= 102, "progress is told once per percent at most"
        master.say(FORM)
        assert master.hear() == Ready(epoch=4)
        master.say(PLAN)
        assert master.hear() == worker.answer
        worker.answer = StepRefused(step_id=2, epoch=4, reason="no")
        master.say(PLAN)
        assert master.hear() == worker.answer
        master.say(Shutdown(reason="enough"))
        assert life.result(10) == EXIT_OK
        assert worker.num_closed == 1


def test_a_rank_leaves_its_group_and_forms_the_next(master):
    worker = ScriptedWorker()
    with ThreadPoolExecutor(1) as pool:
        life = start(master, worker, pool)
        master.hear()
        for form in (FORM, replace(FORM, epoch=5)):
            master.say(form)
            assert master.hear() == Ready(epoch=form.epoch)
            master.say(Leave(epoch=form.epoch))
            assert master.hear() == Left(epoch=form.epoch)
        assert (worker.num_left, worker.num_closed) == (2, 0)
        master.say(Shutdown(reason="enough"))
        assert life.result(10) == EXIT_OK


@pytest.mark.parametrize(("phase", "order"), [("load", LOAD), ("form", FORM), ("run", PLAN)])
def test_what_raises_is_told_before_the_end(master, phase, order):
    worker = ScriptedWorker(fails_in=phase)
    with ThreadPoolExecutor(1) as pool:
        life = start(master, worker, pool)
        master.hear()
        master.say(order)
        assert master.hear() == Fatal(message=f"ValueError: fails in {phase}")
        assert life.result(10) == EXIT_FATAL
        assert worker.num_closed == 1


def test_a_lost_master_ends_the_life(master):
    worker = ScriptedWorker()
    with ThreadPoolExecutor(1) as pool:
        life = start(master, worker, pool)
        master.hear()
        master.hang_up()
        assert life.result(10) == EXIT_MASTER_LOST
        assert worker.num_closed == 1
