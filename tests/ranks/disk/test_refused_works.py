"""Works that the system refuses: told by kind, nothing left half, and the next one is done."""

import errno
import os
import shutil

import pytest
import torch

from ranks.disk.folder import FileCalls
from ranks.wire.file_messages import DeleteFiles, FileFault, SetAside, SweepFiles
from tests.support.disk_files import NAME, blocks, disk_rank, named

FROM, TO = (5, 0, 11), (3, 9, 4)


@pytest.fixture
def saved(tmp_path):
    rank = disk_rank(tmp_path, seed=1)
    assert rank.save(FROM).fault is None
    yield rank
    rank.works.close()


class FailingCalls:
    """The calls of a folder, of which one fails, the so many-th time."""

    def __init__(self, name, error, *, at):
        self.name, self.error, self.left = name, error, at
        self.calls = FileCalls(
            **{
                field: self._wrap(field, getattr(FileCalls(), field))
                for field in ("write", "pwrite", "read_into", "sync")
            }
        )

    def _wrap(self, field, call):
        def called(*args):
            if field == self.name:
                self.left -= 1
                if self.left < 0:
                    raise OSError(self.error, os.strerror(self.error))
            return call(*args)

        return called


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (errno.EIO, FileFault.IO),
        (errno.ENOSPC, FileFault.NO_SPACE),
        (errno.EDQUOT, FileFault.NO_SPACE),
        (errno.EACCES, FileFault.DENIED),
        (errno.EROFS, FileFault.DENIED),
    ],
)
@pytest.mark.parametrize(
    ("name", "at"), [("write", 0), ("write", 3), ("pwrite", 0), ("sync", 0), ("sync", 1)]
)
def test_a_save_that_the_system_refuses_is_told_by_its_kind_and_leaves_nothing_half(
    tmp_path, monkeypatch, name, at, error, fault
):
    # Each tensor is then written by itself, and there is a fourth write.
    monkeypatch.setattr("ranks.disk.file_works._WRITE_BYTES", 1)
    disk_rank(tmp_path, seed=1).save(FROM, named(1))  # the folder is there
    failing = FailingCalls(name, error, at=at)
    rank = disk_rank(tmp_path, seed=1, calls=failing.calls)
    assert rank.save(FROM).fault is fault
    left = {path.name for path in rank.path.parent.iterdir()}
    assert not [one for one in left if one.endswith(".tmp")]
    failing.left = 1000
    # What could not be made durable may be there, but then it is whole.
    assert rank.check().fault is (None if rank.path.name in left else FileFault.MISSING)
    assert rank.save(FROM).fault is None


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_file_that_cannot_be_read_is_a_miss(saved, tmp_path, at):
    rank = disk_rank(tmp_path, calls=FailingCalls("read_into", errno.EIO, at=at).calls)
    assert rank.check().fault is FileFault.IO


def test_short_reads_and_writes_are_gone_on_with(tmp_path):
    calls = FileCalls(
        write=lambda file, data: os.write(file, data[:1000]),
        read_into=lambda file, buffers, at: os.preadv(file, [buffers[0][:777]], at),
    )
    rank = disk_rank(tmp_path, seed=1, calls=calls)
    assert rank.save(FROM).fault is None
    assert rank.check().fault is None
    assert rank.adopt(TO).fault is None
    assert torch.equal(blocks(rank.store, TO), blocks(rank.store, FROM))


def test_a_file_that_becomes_shorter_while_it_is_read_is_torn(saved, tmp_path):
    def read_into(file, buffers, at):
        return os.preadv(file, buffers, at) if at < 100 else 0

    rank = disk_rank(tmp_path, calls=FileCalls(read_into=read_into))
    assert rank.check().fault is FileFault.TORN


@pytest.mark.parametrize("removed", ["folder", "layout"])
def test_a_folder_that_was_removed_costs_its_files_and_no_more(tmp_path, removed):
    folder = tmp_path / "folder"
    rank = disk_rank(folder, seed=1)
    rank.save(FROM)
    shutil.rmtree(folder if removed == "folder" else rank.path.parent)
    assert rank.check().fault is FileFault.MISSING
    assert rank.save(FROM).fault is (FileFault.GONE if removed == "folder" else None)
    for work in (DeleteFiles(names=(NAME,)), SetAside(names=(NAME,)), SweepFiles(known=())):
        assert rank.do(work).fault is None
    folder.mkdir(exist_ok=True)
    assert rank.save(FROM).fault is None
    assert rank.check().fault is None
