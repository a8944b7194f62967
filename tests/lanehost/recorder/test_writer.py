import errno
import os
import stat
import threading

import pytest
import structlog

from lanehost.errors import StartupFailed
from lanehost.recorder.records import Closed, Cut, JobSeated
from lanehost.recorder.trail import Trail
from lanehost.recorder.writer import TrailWriter, WriterLimits, prepare_folder
from tests.support.trails import Ticks, first_file, header


def note(number):
    return JobSeated(at_ns=number, job_id="j", lane_id=number, num_cached_tokens=0)


def make_writer(folder, *, transform=lambda one: one, **limits):
    return TrailWriter(
        folder, header(), transform=transform, limits=WriterLimits(**limits), clock_ns=Ticks()
    )


class Gate:
    """Holds the writer's thread before it writes, like a slow disk."""

    def __init__(self):
        self.is_open = threading.Event()
        self.is_reached = threading.Event()

    def __call__(self, one):
        self.is_reached.set()
        assert self.is_open.wait(10)
        return one


class FailingFile:
    """A file of a disk that fails after some bytes; a shorter write came before."""

    def __init__(self, inner, *, room, number, lets_cut=True):
        self.inner = inner
        self.room = room
        self.number = number
        self.lets_cut = lets_cut
        self.closed = False

    def write(self, content):
        if self.room <= 0:
            raise OSError(self.number, os.strerror(self.number))
        part = content[: self.room]
        self.room -= len(part)
        return self.inner.write(part)

    def truncate(self, size):
        self.room = 10_000 if self.lets_cut else 0
        return self.inner.truncate(size)

    def seek(self, at):
        return self.inner.seek(at)

    def fileno(self):
        return self.inner.fileno()

    def close(self):
        self.closed = True
        self.inner.close()


def test_what_is_put_is_in_the_trail_and_the_end_is_marked(tmp_path):
    writer = make_writer(tmp_path)
    writer.start()
    for number in range(100):
        writer.put(note(number), weight=1)
    writer.close()
    *notes, last = Trail(tmp_path)
    assert (notes, type(last)) == ([note(number) for number in range(100)], Closed)


def test_files_are_numbered_and_bounded_in_size(tmp_path):
    writer = make_writer(tmp_path, max_file_bytes=2000)
    writer.start()
    for number in range(100):
        writer.put(note(number), weight=1)
    writer.close()
    sizes = [path.stat().st_size for path in sorted(tmp_path.iterdir())]
    assert len(sizes) > 3
    assert max(sizes) <= 2000
    assert len(list(Trail(tmp_path))) == 101


def test_nobody_waits_for_a_slow_disk_and_what_waits_is_bounded(tmp_path):
    gate = Gate()
    writer = make_writer(tmp_path, transform=gate, max_pending_weight=50)
    with structlog.testing.capture_logs() as logs:
        writer.start()
        for number in range(100):
            writer.put(note(number), weight=10)
        assert not writer.is_recording
        gate.is_open.set()
        writer.close()
    *notes, last = Trail(tmp_path)
    assert 5 <= len(notes) <= 6
    assert notes == [note(number) for number in range(len(notes))]
    assert isinstance(last, Cut)
    assert "cannot keep up" in last.reason
    assert [one["event"] for one in logs] == ["recording_stopped"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EIO])
def test_a_disk_that_fails_ends_the_trail_with_a_whole_record_and_a_line_in_the_log(
    tmp_path, number
):
    writer = make_writer(tmp_path)
    with structlog.testing.capture_logs() as logs:
        writer.start()
        writer._file = FailingFile(writer._file, room=250, number=number)
        for one in range(50):
            writer.put(note(one), weight=1)
        writer.close()
    writer.put(note(1), weight=1)
    trail = Trail(tmp_path)
    *notes, last = trail
    assert 0 < len(notes) < 50
    assert notes == [note(one) for one in range(len(notes))]
    assert isinstance(last, Cut)
    assert os.strerror(number) in last.reason
    assert trail.torn.num_bytes == 0
    assert [(one["event"], one["log_level"]) for one in logs] == [("recording_stopped", "error")]


def test_a_disk_that_takes_no_cut_leaves_what_it_took(tmp_path):
    writer = make_writer(tmp_path)
    writer.start()
    writer._file = FailingFile(writer._file, room=250, number=errno.ENOSPC, lets_cut=False)
    for one in range(50):
        writer.put(note(one), weight=1)
    writer.close()
    trail = Trail(tmp_path)
    notes = list(trail)
    assert notes == [note(one) for one in range(len(notes))]
    assert 0 < len(notes) < 50
    assert trail.torn.num_bytes == 0


def test_a_bug_in_the_thread_stops_the_recording_and_is_logged_without_its_message(tmp_path):
    def broken(one):
        raise RuntimeError(f"of {one!r}")

    writer = make_writer(tmp_path, transform=broken)
    with structlog.testing.capture_logs() as logs:
        writer.start()
        writer.put(note(1), weight=1)
        writer.close()
    assert {one["event"] for one in logs} == {"internal_fault", "recording_stopped"}
    assert repr(note(1)) not in str(logs)
    (last,) = Trail(tmp_path)
    assert isinstance(last, Cut)


def test_a_full_disk_at_rotation_stops_the_recording(tmp_path):
    writer = make_writer(tmp_path, max_file_bytes=1000)
    (tmp_path / "run-1.000002.trail").mkdir()
    with structlog.testing.capture_logs() as logs:
        writer.start()
        for number in range(50):
            writer.put(note(number), weight=1)
        writer.close()
    assert [one["event"] for one in logs] == ["recording_stopped"]


def test_a_trail_is_for_its_owner_alone(tmp_path):
    folder = tmp_path / "new" / "trails"
    prepare_folder(folder)
    writer = make_writer(folder)
    writer.start()
    writer.close()
    assert stat.S_IMODE(first_file(folder).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_trail_that_is_there_is_never_written_over(tmp_path):
    first_file(tmp_path).write_bytes(b"old")
    with pytest.raises(StartupFailed, match=r"--record: .*run-1\.000001\.trail: File exists"):
        make_writer(tmp_path).start()
    assert first_file(tmp_path).read_bytes() == b"old"


def test_a_folder_that_cannot_be_made_fails_the_start_by_name(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StartupFailed, match=f"--record {tmp_path}/file/under cannot be made"):
        prepare_folder(tmp_path / "file" / "under")


def test_a_record_is_with_the_system_before_the_end(tmp_path):
    gate = Gate()
    writer = make_writer(tmp_path, transform=gate)
    writer.start()
    writer.put(note(1), weight=1)
    writer.put(note(2), weight=1)
    gate.is_open.set()
    while writer._weight_taken < 2:
        threading.Event().wait(0.001)
    assert list(Trail(tmp_path)) == [note(1), note(2)]
    writer.close()
