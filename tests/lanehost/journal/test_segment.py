"""One file of a journal: appended whole, read up to what is whole, damage passed over by name."""

import os
import stat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanehost.errors import StartupFailed
from lanehost.frames import HEAD_BYTES
from lanehost.journal.segment import PROOF, START, Damage, Disk, Segment, read_segment
from tests.support.journals import HEADER, SmallDisk, accepted, drawn, ended

RECORDS = [HEADER, accepted(), drawn(1, 0, 5), drawn(1, 1, 6, 7), ended(1, 3)]


def write(folder, records=RECORDS, *, room=0, disk=None):
    folder.mkdir(exist_ok=True)
    segment = Segment(folder / f"{len(list(folder.iterdir())):06}.journal", disk or Disk())
    ends = []
    for record in records:
        segment.append([record])
        ends.append(segment.num_bytes)
    if room:
        segment.make_room(room)
    return segment, ends


def read(path):
    damage = Damage()
    return list(read_segment(path, damage)), damage


def test_what_is_read_is_what_was_written_with_room_behind_it_or_without(tmp_path):
    for room in (0, 1000):
        segment, _ = write(tmp_path, room=room)
        records, damage = read(segment.path)
        assert (records, damage.num_records) == (RECORDS, 0)
        segment.close()
        assert read(segment.path) == (RECORDS, Damage())
        assert segment.path.stat().st_size == segment.num_bytes


def test_it_is_for_its_owner_alone_and_never_written_over(tmp_path):
    segment, _ = write(tmp_path)
    assert stat.S_IMODE(segment.path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        Segment(segment.path, Disk())


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2000), st.booleans())
def test_cut_anywhere_with_zeros_behind_or_nothing_its_whole_records_are_read(
    tmp_path_factory, cut, has_room
):
    segment, ends = write(tmp_path_factory.mktemp("cut"))
    content = segment.path.read_bytes()[:cut]
    segment.path.write_bytes(content + bytes(500 * has_room))
    records, damage = read(segment.path)
    whole = sum(end <= len(content) for end in ends)
    # The last byte of a checksum may be a zero: then nothing is missing.
    assert records[:whole] == RECORDS[:whole]
    assert len(records) <= whole + 1
    assert (damage.num_records, damage.is_cut) == (0, False)


@settings(deadline=None, max_examples=120)
@given(st.data())
def test_a_changed_byte_is_passed_over_by_name_or_cuts_the_rest_by_name(tmp_path_factory, data):
    segment, ends = write(tmp_path_factory.mktemp("flip"))
    segment.close()
    content = bytearray(segment.path.read_bytes())
    at = data.draw(st.integers(len(START), len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    segment.path.write_bytes(content)
    records, damage = read(segment.path)
    hit = sum(end <= at for end in ends)
    begin = ends[hit - 1] if hit else len(START)
    assert damage.num_records + (damage.num_torn_bytes > 0) == 1
    if at - begin < 8:  # the length or its check: nobody knows where the next one begins
        assert records == RECORDS[:hit]
    else:
        assert records == RECORDS[:hit] + RECORDS[hit + 1 :]
    if damage.num_records:
        assert f"record {hit} " in damage.first


def test_a_last_record_that_was_half_written_into_its_room_is_a_torn_tail(tmp_path):
    segment, ends = write(tmp_path)
    content = segment.path.read_bytes()
    for cut in (ends[-2] + HEAD_BYTES + 3, ends[-2] + 5):
        segment.path.write_bytes(content[:cut] + bytes(300))
        records, damage = read(segment.path)
        assert records == RECORDS[:-1]
        assert (damage.num_records, damage.num_torn_bytes > 0) == (0, True)


def test_a_record_of_another_kind_is_passed_over(tmp_path):
    segment, _ = write(tmp_path, RECORDS[:2])
    with segment.path.open("ab") as file:
        file.write(PROOF.frame(2, b"\x81\xa4kind\xa3bad") + PROOF.frame(3, b"\xc1"))
    records, damage = read(segment.path)
    assert records == RECORDS[:2]
    assert damage.num_records == 2
    assert "record 2 is none of ours" in damage.first


def test_what_is_no_journal_or_of_a_later_version_is_refused_by_name(tmp_path):
    for content, message in (
        (b"something else entirely", "no journal of lanehost"),
        (START[:-2] + b"\x09\x00", "format 9"),
    ):
        path = tmp_path / "000001.journal"
        path.write_bytes(content)
        with pytest.raises(StartupFailed, match=message) as refused:
            read(path)
        assert str(path) in str(refused.value)
    with pytest.raises(StartupFailed, match="No such file"):
        read(tmp_path / "none")


def test_a_file_that_was_only_begun_is_empty(tmp_path):
    path = tmp_path / "000001.journal"
    path.write_bytes(START[:5])
    assert read(path) == ([], Damage(num_torn_bytes=5))


def test_with_room_a_full_disk_takes_what_was_promised_and_no_more(tmp_path):
    disk = SmallDisk(1 << 20)
    segment, _ = write(tmp_path, room=600, disk=disk)
    disk.num_left = 0
    segment.append([drawn(2, 0, 5)])
    with pytest.raises(OSError, match="No space"):
        segment.append([accepted(2, label="x" * 600_000)])
    assert read(segment.path)[0] == [*RECORDS, drawn(2, 0, 5)]


def test_what_a_write_that_failed_left_is_cut_off(tmp_path):
    class HalfDisk(SmallDisk):
        def write(self, handle, content, at):
            if self.num_left < 1 << 19:
                os.pwrite(handle, content[:10], at)
                raise OSError(5, "broken")
            return super().write(handle, content, at)

    disk = HalfDisk(1 << 20)
    segment, ends = write(tmp_path, disk=disk)
    disk.num_left = 0
    with pytest.raises(OSError, match="broken"):
        segment.append([drawn(1, 3, 8)])
    assert segment.path.stat().st_size == segment.num_bytes == ends[-1]
