"""Memory without a name: who can open it, and that what is opened is what was meant."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ranks.shared_memory import (
    MAX_BYTES,
    Address,
    NoMemory,
    make_memory,
    open_memory,
    why_no_memory,
)
from tests.support.processes import num_open_files

SIZE = 8192


@pytest.fixture
def made():
    address = make_memory(SIZE)
    yield address
    os.close(address.descriptor)


def test_what_one_writes_the_other_reads(made):
    opened = open_memory(Address.from_text(made.to_text()), SIZE)
    os.pwrite(made.descriptor, b"here", 100)
    assert os.pread(opened, 4, 100) == b"here"
    os.close(opened)


def test_it_is_zeroed_behind_the_token_and_belongs_to_its_user_alone(made):
    assert os.pread(made.descriptor, SIZE, 16) == bytes(SIZE - 16)
    facts = os.fstat(made.descriptor)
    assert (facts.st_mode & 0o777, facts.st_uid) == (0o600, os.geteuid())


@pytest.mark.parametrize("size", [0, SIZE - 1, SIZE + 1])
def test_its_size_is_fixed(made, size):
    with pytest.raises(PermissionError):
        os.ftruncate(made.descriptor, size)


def test_another_size_than_expected_is_refused(made):
    with pytest.raises(NoMemory, match="it has 8192 bytes, expected are 4096"):
        open_memory(made, 4096)


def test_the_memory_of_another_group_is_refused(made):
    with pytest.raises(NoMemory, match="another group's"):
        open_memory(replace(made, token="0" * 32), SIZE)


def test_memory_that_others_may_open_is_refused(made):
    os.fchmod(made.descriptor, 0o666)
    with pytest.raises(NoMemory, match="mode 666"):
        open_memory(made, SIZE)


def test_memory_whose_size_can_change_is_refused(made):
    loose = os.memfd_create("lanehost-collectives", os.MFD_ALLOW_SEALING)
    os.fchmod(loose, 0o600)
    os.ftruncate(loose, SIZE)
    with pytest.raises(NoMemory, match="size is not fixed"):
        open_memory(replace(made, descriptor=loose), SIZE)
    os.close(loose)


def test_what_is_no_memory_is_not_even_opened(made, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Without a writer, opening it to read would wait.
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(NoMemory, match="is no shared memory"):
        open_memory(replace(made, descriptor=reader), SIZE)
    os.close(reader)


def test_memory_that_is_gone_is_an_error_by_name(made):
    with pytest.raises(NoMemory, match="No such file"):
        open_memory(replace(made, descriptor=9999), SIZE)


def test_it_has_no_name_in_any_file_system(made):
    assert Path(f"/proc/self/fd/{made.descriptor}").readlink().name.endswith(" (deleted)")
    assert [path.name for path in Path("/dev/shm").iterdir() if "lanehost" in path.name] == []


def test_memory_that_the_system_does_not_give_is_an_error_by_name():
    with pytest.raises(NoMemory, match="0 bytes of shared memory: Invalid argument"):
        make_memory(0)


def test_more_than_a_group_may_share_is_refused_before_it_is_taken():
    with pytest.raises(
        NoMemory, match=f"{MAX_BYTES + 1} bytes of shared memory, limit {MAX_BYTES}"
    ):
        make_memory(MAX_BYTES + 1)


def test_the_token_is_in_no_log(made):
    assert made.token not in repr(made)


def test_this_machine_can_share_and_leaves_nothing_open():
    before = num_open_files()
    assert why_no_memory() is None
    assert num_open_files() == before
