import errno
import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lanehost.disk_cache.interface import FileReason
from lanehost.disk_cache.rank_file import check_rank_file, files_of, survey
from tests.support.disk_folders import entry_in, file_of


@pytest.fixture
def entry(tmp_path):
    return entry_in(tmp_path)


@pytest.fixture
def path(tmp_path, entry):
    return file_of(tmp_path, entry)


def test_what_a_rank_wrote_is_whole(tmp_path, entry, path):
    assert list(files_of(tmp_path, entry.header)) == [path]
    assert check_rank_file(path, entry.header) is None


def test_other_names_are_no_files_of_the_entry(tmp_path, entry, path):
    path.with_name(path.name.replace("r0of1", "rXof1")).write_bytes(b"")
    assert list(files_of(tmp_path, entry.header)) == [path]
    assert check_rank_file(path.with_name("other"), entry.header) is FileReason.FOREIGN


def test_a_survey_tells_what_is_missing_what_another_host_has_and_what_is_nobodys(tmp_path):
    entries = [replace(entry_in(tmp_path, first=at), rank_bytes=(9, 9, 9)) for at in (0, 100, 200)]

    def path_of(number, rank):
        one = entries[number].header
        return tmp_path / one.layout / f"{one.key}.r{rank}of3.safetensors"

    for number in range(2):
        for rank in range(2):
            path_of(number, rank).touch()
    path_of(1, 1).unlink()
    half = path_of(0, 0).with_name(f".{'0' * 64}.r0of3.1.tmp")
    orphans = {file_of(tmp_path, entries[2]), path_of(2, 0), half}
    for path in orphans:
        path.touch()
    seen = survey(tmp_path, entries[:2])
    assert (seen.missing, seen.num_elsewhere) == ((path_of(1, 1),), 2)
    assert set(seen.orphans) == orphans


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"layout": "0" * 64}, FileReason.FOREIGN),
        ({"num_tokens": 16}, FileReason.TOKENS),
        ({"tokens_digest": "0" * 64}, FileReason.TOKENS),
    ],
)
def test_a_file_of_another_entry_is_named(entry, path, change, reason):
    assert check_rank_file(path, replace(entry.header, **change)) is reason


def test_a_file_of_another_rank_is_foreign(entry, path):
    other = path.rename(path.with_name(path.name.replace("r0of1", "r1of2")))
    assert check_rank_file(other, entry.header) is FileReason.FOREIGN


def test_one_that_is_not_there_is_missing(entry, path):
    path.unlink()
    assert check_rank_file(path, entry.header) is FileReason.MISSING


def test_a_folder_is_foreign(entry, path):
    path.unlink()
    path.mkdir()
    assert check_rank_file(path, entry.header) is FileReason.FOREIGN


def test_one_that_cannot_be_read_says_so(entry, path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr("lanehost.disk_cache.rank_file.open_regular", fail)
    assert check_rank_file(path, entry.header) is FileReason.IO


@pytest.mark.timeout(20)
@pytest.mark.parametrize("what", ["link", "pipe"])
def test_a_link_and_a_pipe_are_foreign_and_nobody_waits_for_them(entry, path, what):
    whole = path.rename(path.with_name("whole"))
    if what == "link":
        path.symlink_to(whole)
    else:
        os.mkfifo(path)
    assert check_rank_file(path, entry.header) is FileReason.FOREIGN


def test_longer_and_shorter_ones_are_not_whole(entry, path):
    content = path.read_bytes()
    path.write_bytes(content + b"\0")
    assert check_rank_file(path, entry.header) is FileReason.FOREIGN
    path.write_bytes(content[:-1])
    assert check_rank_file(path, entry.header) is FileReason.TORN


def test_a_header_beyond_its_bound_is_foreign(entry, path):
    path.write_bytes((2 << 20).to_bytes(8, "little") + b"{" * (3 << 20))
    assert check_rank_file(path, entry.header) is FileReason.FOREIGN


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_a_flipped_bit_and_a_cut_are_never_whole(tmp_path, data):
    entry = entry_in(tmp_path)
    path = file_of(tmp_path, entry)
    content = bytearray(path.read_bytes())
    at = data.draw(st.one_of(st.integers(0, 900), st.integers(0, len(content) - 1)))
    if data.draw(st.booleans()):
        path.write_bytes(content[:at])
    else:
        content[at] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)
    assert isinstance(check_rank_file(path, entry.header), FileReason)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_crash_the_check(tmp_path, content):
    entry = entry_in(tmp_path)
    file_of(tmp_path, entry).write_bytes(content)
    assert isinstance(check_rank_file(file_of(tmp_path, entry), entry.header), FileReason)
