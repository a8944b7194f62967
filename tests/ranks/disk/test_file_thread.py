"""The thread for files: each work answered once, saves last, the pool let go in one copy."""

import queue
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ranks.abort import Abort
from ranks.disk.file_thread import MAX_WAITING, FileThread
from ranks.disk.folder import FileCalls, Folder
from ranks.disk.snapshot import PoolLoan, bind
from ranks.errors import MasterLost
from ranks.wire.file_messages import (
    AdoptFile,
    CheckFile,
    DropFile,
    FileFault,
    FileOrder,
    SaveFile,
    SweepFiles,
)
from tests.support.disk_files import (
    BLOCK_SIZE,
    HEADER,
    NUM_BLOCKS,
    STATE,
    blocks,
    named,
    new_store,
)

FROM, TO = (5, 0, 11), (3, 9, 4)


class Rig:
    """A thread, an epoch, and a gate before every write and sync that a test may close."""

    def __init__(self, path):
        self.thread = FileThread(rank=0, world_size=1)
        self.store = new_store(seed=1)
        self.abort = Abort()
        self.gate = threading.Event()
        self.gate.set()
        self.held = threading.Event()
        self.answers = queue.Queue()
        plain = FileCalls()
        calls = replace(plain, write=lambda *args: self._held(plain.write, *args))
        self.folder = Folder(path, rank=0, world_size=1, calls=calls)

    def _held(self, call, *args):
        self.held.set()
        assert self.gate.wait(10)
        return call(*args)

    def begin(self, epoch=1):
        loan = PoolLoan(bind(STATE, self.store.pool), num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE)
        self.thread.begin(epoch, self.folder, STATE, loan, self.abort)

    def ask(self, order_id, work, epoch=1):
        order = FileOrder(order_id=order_id, epoch=epoch, work=work)
        self.thread.take(order, self.answers.put)

    def hear(self):
        return self.answers.get(timeout=10)


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    rig.gate.set()
    rig.thread.close()


def open_files(folder):
    files = (path.resolve() for path in Path("/proc/self/fd").iterdir())
    return [path for path in files if path.is_relative_to(folder)]


def save(number=0):
    return SaveFile(header=named(number), block_ids=FROM)


def test_a_save_a_check_and_an_adopt_are_done_and_told_with_bytes_and_time(rig):
    rig.begin()
    works = (save(), CheckFile(header=named(0)), AdoptFile(header=named(0), block_ids=TO))
    for order_id, work in enumerate(works, start=1):
        rig.ask(order_id, work)
        done = rig.hear()
        assert (done.order_id, done.epoch, done.fault) == (order_id, 1, None)
        assert done.num_bytes == rig.folder.path_of(named(0).name).stat().st_size
        assert done.took_ns > 0
    assert torch.equal(blocks(rig.store, TO), blocks(rig.store, FROM))


def test_a_rank_without_a_folder_answers_that(rig):
    rig.ask(1, save())
    assert rig.hear().fault is FileFault.GONE


def test_a_folder_that_cannot_be_made_costs_its_works_and_no_more(rig, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    rig.folder = Folder(tmp_path / "file" / "folder", rank=0, world_size=1)
    rig.begin()
    rig.ask(1, save())
    assert rig.hear().fault is FileFault.GONE
    (tmp_path / "file").unlink()
    rig.ask(2, save())
    assert rig.hear().fault is None


def test_a_drop_ends_the_save_that_is_under_way_and_one_that_waits(rig):
    rig.begin()
    rig.gate.clear()
    for number in (1, 2, 3):
        rig.ask(number, save(number))
    assert rig.held.wait(10)
    for number in (1, 2):
        rig.ask(10 + number, DropFile(name=named(number).name))
    rig.gate.set()
    told = {done.order_id: done.fault for done in (rig.hear() for _ in range(5))}
    assert told == {1: FileFault.BUSY, 2: FileFault.BUSY, 11: None, 12: None, 3: None}
    there = [path.name[:64] for path in rig.folder.path_of(named(3).name).parent.iterdir()]
    assert there == [named(3).name.key]


def test_a_save_steps_aside_for_what_somebody_waits_for(rig):
    rig.begin()
    rig.ask(1, save(1))
    assert rig.hear().fault is None
    rig.gate.clear()
    rig.held.clear()
    rig.ask(2, save(2))
    assert rig.held.wait(10)
    rig.ask(3, save(3))
    rig.ask(4, CheckFile(header=named(1)))
    rig.gate.set()
    assert [rig.hear().order_id for _ in range(3)] == [4, 2, 3]


def test_too_many_works_are_refused_at_once(rig):
    rig.begin()
    rig.gate.clear()
    rig.ask(1, save())
    assert rig.held.wait(10)
    for order_id in range(2, MAX_WAITING + 2):
        rig.ask(order_id, save(order_id))
    rig.ask(99, save(99))
    assert (rig.hear().order_id, rig.answers.empty()) == (99, True)


def test_the_end_of_an_epoch_ends_its_works_and_each_is_answered(rig):
    rig.begin()
    rig.gate.clear()
    rig.ask(1, save(1))
    assert rig.held.wait(10)
    rig.ask(2, save(2))
    rig.ask(3, CheckFile(header=named(1)))
    rig.thread.let_go()  # does not wait for the write that is under way
    rig.gate.set()
    assert {rig.hear().order_id for _ in range(3)} == {1, 2, 3}
    assert not rig.folder.path_of(named(1).name).exists()
    assert list(rig.folder.path_of(named(1).name).parent.iterdir()) == []


def test_an_abort_gives_a_work_up_between_two_copies(rig):
    rig.begin()
    rig.gate.clear()
    rig.ask(1, save(1))
    assert rig.held.wait(10)
    rig.abort.set()
    rig.gate.set()
    assert rig.hear().fault is FileFault.GONE
    assert not rig.folder.path_of(named(1).name).exists()


def test_works_of_another_epoch_are_not_done_and_checked_files_end_with_theirs(rig, tmp_path):
    rig.begin(epoch=1)
    rig.ask(1, save())
    assert rig.hear().fault is None
    rig.ask(2, CheckFile(header=named(0)))
    assert rig.hear().fault is None
    assert len(open_files(tmp_path)) == 1
    rig.thread.let_go()
    rig.begin(epoch=2)
    rig.ask(3, AdoptFile(header=named(0), block_ids=TO), epoch=1)
    assert rig.hear().fault is FileFault.GONE
    assert open_files(tmp_path) == []
    rig.ask(4, AdoptFile(header=named(0), block_ids=TO), epoch=2)
    assert rig.hear().fault is FileFault.UNCHECKED


def test_a_bug_in_a_work_costs_that_work_alone(rig):
    rig.begin()
    rig.ask(1, SaveFile(header=replace(HEADER, name=None), block_ids=FROM))
    assert rig.hear().fault is FileFault.IO
    rig.ask(2, SweepFiles(known=()))
    assert rig.hear().fault is None


def test_without_a_master_the_thread_ends(rig):
    rig.begin()

    def lost(done):
        raise MasterLost("gone")

    rig.thread.take(FileOrder(order_id=1, epoch=1, work=SweepFiles(known=())), lost)
    rig.thread._thread.join(10)
    assert not rig.thread._thread.is_alive()


def test_a_thread_that_was_closed_takes_nothing_more(rig):
    rig.begin()
    rig.thread.close()
    rig.ask(1, save())
    assert rig.hear().fault is FileFault.GONE
