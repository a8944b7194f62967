"""The life of a rank, with a worker of any kind: every plan answered, every fault told."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest

from ranks.errors import FellowLost, RendezvousFailed, StepBroken
from ranks.link import open_channel
from ranks.plan import StepPlan, StepRefused
from ranks.session import EXIT_FATAL, EXIT_MASTER_LOST, EXIT_OK, live
from ranks.settings import RankSettings
from ranks.wire.file_messages import DropFile, FileDone, FileFault, FileName, FileOrder
from ranks.wire.image_messages import (
    CancelImage,
    DropImage,
    EncodeImage,
    ImageDone,
    ImageFault,
    ImageOrder,
)
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
    Ready,
    Shutdown,
)
from tests.support.scripted_master import scripted_master
from tests.support.scripted_worker import ScriptedWorker

LOAD = Load(
    model_path="m", dtype="auto", weights="auto", device="cpu", num_threads=None, block_size=16,
    max_step_tokens=64, num_lanes=2,
)  # fmt: skip
FORM = Form(
    epoch=4, num_blocks=2, block_size=16, num_lanes=1, max_step_tokens=8, collective_timeout_s=5
)
PLAN = StepPlan(step_id=1, epoch=4, digest=bytes(16))


@pytest.fixture
def master():
    with scripted_master() as master:
        yield master


@contextmanager
def living(master, worker, **options):
    """A rank that has formed an epoch, unless it was told to be slow."""
    with ThreadPoolExecutor(1) as pool:
        life = start(master, worker, pool, **options)
        assert isinstance(master.hear(), Hello)
        yield life
        master.say(Shutdown(reason="enough"))
        master.hang_up()
        life.result(10)


def form(master, epoch=4):
    master.say(replace(FORM, epoch=epoch))
    assert master.hear() == Ready(epoch=epoch)


def start(master, worker, pool, **options):
    settings = RankSettings(master=master.address, rank=1, world_size=2, death_fd=0, token="secret")

    def act():
        with open_channel(master.address) as channel:
            return live(settings, worker, channel, build="1.0", on_lost=int, **options)

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
        master.say(Shutdown(reason="enough"))
        assert life.result(10) == EXIT_OK
    assert (worker.num_left, worker.num_freed, worker.num_closed) == (2, 2, 1)


@pytest.mark.parametrize(
    ("phase", "orders"), [("load", [LOAD]), ("form", [FORM]), ("run", [FORM, PLAN])]
)
def test_what_raises_is_told_before_the_end(master, phase, orders):
    worker = ScriptedWorker(fails_in=phase)
    with ThreadPoolExecutor(1) as pool:
        life = start(master, worker, pool)
        master.hear()
        for order in orders:
            master.say(order)
        if phase == "run":
            assert master.hear() == Ready(epoch=4)
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


def test_leave_wakes_a_step_that_waits_and_what_was_planned_behind_it_is_dropped(master):
    worker = ScriptedWorker()
    with living(master, worker):
        form(master)
        worker.waits = "for an abort in run"
        for step_id in (1, 2):
            master.say(replace(PLAN, step_id=step_id))
        assert worker.began.wait(10)
        master.say(Leave(epoch=4))
        assert master.hear() == Left(epoch=4)
        form(master, epoch=5)
    assert worker.num_run == 1


def test_leave_wakes_a_rank_that_forms(master):
    worker = ScriptedWorker()
    worker.waits = "for an abort in form"
    with living(master, worker):
        master.say(FORM)
        assert worker.began.wait(10)
        master.say(Leave(epoch=4))
        assert master.hear() == Left(epoch=4)
        worker.waits = 0
        form(master, epoch=5)


def test_a_result_of_an_epoch_that_is_over_is_not_sent(master):
    worker = ScriptedWorker()
    with living(master, worker):
        form(master)
        worker.waits = "for nothing in run"
        worker.began.clear()
        master.say(PLAN)
        assert worker.began.wait(10)
        master.say(Leave(epoch=4))
        assert worker.abort.wait(10)
        worker.go_on.set()
        assert master.hear() == Left(epoch=4)


LOSSES = [
    (FellowLost("rank 0 has ended", suspect=0), 0),
    (FellowLost("somebody has left", suspect=None), None),
    (StepBroken("ValueError while it was computed"), 1),
]


@pytest.mark.parametrize(("error", "suspect"), LOSSES)
def test_a_step_that_a_fellow_or_this_rank_broke_ends_the_epoch_and_not_the_rank(
    master, error, suspect
):
    worker = ScriptedWorker()
    with living(master, worker):
        form(master)
        worker.raises = error
        master.say(PLAN)
        master.say(replace(PLAN, step_id=2))
        assert master.hear() == Broken(epoch=4, suspect=suspect, reason=str(error))
        master.say(Leave(epoch=4))
        assert master.hear() == Left(epoch=4)
        worker.raises = None
        form(master, epoch=5)
        master.say(replace(PLAN, epoch=5))
        assert master.hear() == worker.answer
    assert worker.num_run == 2, "the plan behind the broken step has run"


def test_a_group_that_cannot_be_formed_ends_the_epoch_and_not_the_rank(master):
    worker = ScriptedWorker()
    worker.raises = FellowLost("rank 0 has not come", suspect=0)
    with living(master, worker):
        master.say(FORM)
        assert master.hear() == Broken(epoch=4, suspect=0, reason="rank 0 has not come")
        master.say(Leave(epoch=4))
        assert master.hear() == Left(epoch=4)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_store_that_knows_an_epoch_to_be_over_before_leave_is_here_ends_no_rank(master, is_told):
    worker = ScriptedWorker()
    worker.waits = "for nothing in form"
    worker.raises = RendezvousFailed("'epoch4/memory' is of an epoch that is over")
    with living(master, worker):
        master.say(FORM)
        assert worker.began.wait(10)
        worker.go_on.set()
        if not is_told:
            assert master.hear() == Broken(epoch=4, suspect=None, reason=str(worker.raises))
        master.say(Leave(epoch=4))
        assert master.hear() == Left(epoch=4)


def test_a_rank_that_is_told_to_leave_as_its_fellow_leaves_accuses_nobody(master):
    worker = ScriptedWorker()
    with living(master, worker):
        form(master)
        worker.waits = "for nothing in run"
        worker.began.clear()
        worker.raises = FellowLost("the connection was closed", suspect=0)
        master.say(PLAN)
        assert worker.began.wait(10)
        worker.go_on.set()
        master.say(Leave(epoch=4))
        assert master.hear() == Left(epoch=4)


def test_a_broken_rank_that_nobody_tells_to_leave_ends_by_itself(master):
    worker = ScriptedWorker()
    with ThreadPoolExecutor(1) as pool:
        life = start(master, worker, pool, leave_timeout_s=0.3)
        master.hear()
        form(master)
        worker.raises = FellowLost("rank 0 has ended", suspect=0)
        master.say(PLAN)
        assert isinstance(master.hear(), Broken)
        assert life.result(10) == EXIT_MASTER_LOST


@pytest.mark.parametrize(
    ("epochs", "words"),
    [((4, 4), "has known epoch 4"), ((4, 3), "has known epoch 4")],
)
def test_a_rank_that_has_known_a_later_epoch_ends(master, epochs, words):
    with ThreadPoolExecutor(1) as pool:
        life = start(master, ScriptedWorker(), pool)
        master.hear()
        form(master, epoch=epochs[0])
        master.say(Leave(epoch=epochs[0]))
        assert master.hear() == Left(epoch=epochs[0])
        master.say(replace(FORM, epoch=epochs[1]))
        assert words in master.hear().message
        assert life.result(10) == EXIT_FATAL


def test_a_leave_of_an_older_epoch_is_ignored(master):
    worker = ScriptedWorker()
    with living(master, worker):
        form(master)
        master.say(Leave(epoch=3))
        master.say(PLAN)
        assert master.hear() == worker.answer
    assert worker.num_left == 0


def test_a_heart_beats_while_the_main_thread_works_and_tells_how_far_it_is(master):
    worker = ScriptedWorker()
    with living(master, worker):
        form(master)
        assert master.beats.get(timeout=10).step_id == 0
        worker.waits = "for nothing in run"
        master.say(replace(PLAN, step_id=9))
        while (beat := master.beats.get(timeout=10)).step_id != 9:
            pass
        assert master.beats.get(timeout=10) == beat, "nothing was computed since"
        worker.num_stages_now = 70
        while master.beats.get(timeout=10).num_stages != beat.num_stages + 70:
            pass
        worker.go_on.set()
        while master.beats.get(timeout=10).step_id != 0:
            pass


def test_a_work_on_files_waits_for_no_step_and_is_not_done_by_who_computes(master):
    worker = ScriptedWorker()
    with living(master, worker):
        form(master)
        worker.waits = "for nothing in run"
        worker.began.clear()
        master.say(PLAN)
        assert worker.began.wait(10)
        work = DropFile(name=FileName(layout="00" * 32, key="11" * 32))
        master.say(FileOrder(order_id=3, epoch=4, work=work))
        assert master.hear() == FileDone(order_id=3, epoch=4, fault=FileFault.TORN)
        assert worker.file_thread.name == "link"
        worker.go_on.set()
        assert master.hear() == worker.answer


def encode(image_id, epoch=4):
    work = EncodeImage(image_id=image_id, digest="00" * 32, width=1, height=1, pixels=b"rgb")
    return ImageOrder(epoch=epoch, work=work)


def test_an_image_waits_for_no_step_and_its_rows_are_dropped_in_turn_with_the_plans(master):
    worker = ScriptedWorker()
    with living(master, worker):
        form(master)
        worker.waits = "for nothing in run"
        worker.began.clear()
        master.say(PLAN)
        assert worker.began.wait(10)
        master.say(replace(PLAN, step_id=2))
        master.say(ImageOrder(epoch=4, work=DropImage(image_id=2)))
        master.say(ImageOrder(epoch=4, work=CancelImage(image_id=3)))
        master.say(encode(3))
        assert master.hear() == ImageDone(epoch=4, image_id=3, fault=ImageFault.BUSY)
        assert [type(work) for work, _ in worker.image_orders] == [CancelImage, EncodeImage]
        assert {thread.name for _, thread in worker.image_orders} == {"link"}
        worker.waits = ""
        worker.go_on.set()
        for _ in range(2):
            assert master.hear() == worker.answer
        master.say(PLAN)
        assert master.hear() == worker.answer
        work, thread = worker.image_orders[-1]
        assert (work, thread.name == "link") == (DropImage(image_id=2), False)
    assert worker.num_run == 3
