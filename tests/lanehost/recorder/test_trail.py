import itertools
import struct
from hashlib import blake2b

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lanehost.recorder import trail as trail_module
from lanehost.recorder.check import check_trail
from lanehost.recorder.records import MAX_RECORD_BYTES, JobSeated, pack
from lanehost.recorder.trail import (
    FORMAT_VERSION,
    MAGIC,
    START,
    DamagedTrail,
    ForeignFile,
    IncompleteTrail,
    NewerTrail,
    Torn,
    Trail,
    TrailError,
    frame,
    read_file,
    trail_name,
)
from tests.support.trails import RUN_ID, first_file, header, run_recorded, write_file

NUMBERS = itertools.count()


def notes(count):
    return [JobSeated(at_ns=n, job_id="j", lane_id=n, num_cached_tokens=0) for n in range(count)]


def written(folder, *, count=5, number=1, **about):
    path = folder / trail_name(RUN_ID, number)
    return write_file(path, [header(file_number=number, **about), *notes(count)])


def read_as_far_as_it_goes(path):
    """Return the records before the end or the error, and whichever it is."""
    torn, records = Torn(), []
    try:
        records.extend(read_file(path, torn))
    except TrailError as error:
        return records, error
    return records, torn


def test_what_was_written_is_read(tmp_path):
    trail = Trail(written(tmp_path))
    assert (trail.header, list(trail), trail.torn.num_bytes) == (header(), notes(5), 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_torn_tail_is_read_up_to_the_last_whole_record(tmp_path, data):
    whole = written(tmp_path).read_bytes()
    ends = [len(START)]
    for number, record in enumerate([header(), *notes(5)]):
        ends.append(ends[-1] + len(frame(number, record)))
    assert ends[-1] == len(whole)
    length = data.draw(st.integers(0, len(whole)))
    path = tmp_path / "torn"
    path.write_bytes(whole[:length])
    records, torn = read_as_far_as_it_goes(path)
    num_whole = sum(end <= length for end in ends) - 1
    assert isinstance(torn, Torn)
    assert records == [header(), *notes(5)][: max(num_whole, 0)]
    last_end = ends[num_whole] if num_whole >= 0 else 0
    assert torn.num_bytes == length - last_end


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_byte_is_an_error_at_its_record_and_never_other_records(tmp_path, data):
    content = bytearray(written(tmp_path).read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "changed"
    path.write_bytes(content)
    records, error = read_as_far_as_it_goes(path)
    assert isinstance(error, TrailError)
    assert records == [header(), *notes(5)][: len(records)]
    assert len(records) < 6


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=400), starts_well=st.booleans())
def test_any_file_is_read_to_an_end_or_a_typed_error(tmp_path, content, starts_well):
    path = tmp_path / f"any-{next(NUMBERS)}"
    path.write_bytes(START + content if starts_well else content)
    records, end = read_as_far_as_it_goes(path)
    assert records == []
    assert isinstance(end, Torn | TrailError)


def first_format(records, *, absent):
    """A file as the first format had it: no version in the checks, and fields not yet there."""
    content = MAGIC + struct.pack("<H", 1)
    for number, record in enumerate(records):
        fields = msgpack.unpackb(pack(record))
        for part in (fields, fields.get("plan", {})):
            for name in absent:
                part.pop(name, None)
        payload = msgpack.packb(fields)
        length = struct.pack("<I", len(payload))
        counted = struct.pack("<Q", number)
        content += length + blake2b(counted + length, digest_size=4).digest()
        content += blake2b(counted + payload, digest_size=8).digest() + payload
    return content


async def test_a_trail_of_the_first_format_is_read_and_its_plans_follow_each_other(tmp_path):
    await run_recorded(tmp_path)
    path = first_file(tmp_path)
    records = list(read_file(path, Torn()))
    path.write_bytes(first_format(records, absent=("follows", "scope", "priority", "refusal")))
    assert list(read_file(path, Torn())) == records
    trail = Trail(path)
    assert check_trail(trail.header, trail, on_step=lambda _: None).difference is None


def test_a_version_that_was_changed_to_another_that_is_read_is_seen(tmp_path):
    path = written(tmp_path)
    path.write_bytes(MAGIC + struct.pack("<H", 1) + path.read_bytes()[len(START) :])
    assert isinstance(read_as_far_as_it_goes(path)[1], DamagedTrail)


def test_zeros_where_a_power_cut_left_them_are_a_torn_tail(tmp_path):
    path = written(tmp_path)
    with path.open("ab") as tail:
        tail.write(bytes(5000))
    trail = Trail(path)
    assert (list(trail), trail.torn.num_bytes) == (notes(5), 5000)


def test_a_frame_that_was_taken_out_is_seen(tmp_path):
    frames = [frame(number, one) for number, one in enumerate([header(), *notes(3)])]
    path = tmp_path / "cut-out"
    path.write_bytes(START + frames[0] + frames[1] + frames[3])
    assert isinstance(read_as_far_as_it_goes(path)[1], DamagedTrail)


def test_a_length_above_the_bound_is_refused_before_it_is_read(tmp_path):
    length = struct.pack("<I", MAX_RECORD_BYTES + 1)
    path = tmp_path / "long"
    proof = trail_module._proof(FORMAT_VERSION)
    path.write_bytes(START + length + proof.of_length(0, MAX_RECORD_BYTES + 1) + bytes(8))
    with pytest.raises(DamagedTrail, match=f"{MAX_RECORD_BYTES + 1} bytes, limit"):
        list(read_file(path, Torn()))


def test_a_record_above_the_bound_is_not_written():
    with pytest.raises(ValueError, match="limit"):
        frame(0, header(model_path="m" * (MAX_RECORD_BYTES + 1)))


def test_a_file_of_another_kind_is_foreign(tmp_path):
    path = tmp_path / "other"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ForeignFile, match="no trail of lanehost"):
        Trail(path)


def test_a_later_format_is_refused_with_both_versions(tmp_path):
    path = tmp_path / "later"
    path.write_bytes(MAGIC + struct.pack("<H", FORMAT_VERSION + 1) + bytes(50))
    with pytest.raises(NewerTrail, match=f"format {FORMAT_VERSION + 1}.*reads {FORMAT_VERSION}"):
        Trail(path)


@pytest.mark.parametrize("name", ["missing", "."])
def test_where_no_trail_is_the_path_is_named(tmp_path, name):
    with pytest.raises(ForeignFile, match=str(tmp_path)):
        Trail(tmp_path / name)


def test_a_folder_of_one_run_is_that_run(tmp_path):
    written(tmp_path)
    assert Trail(tmp_path).header.run_id == RUN_ID


def test_a_folder_of_two_runs_asks_for_one_by_name(tmp_path):
    written(tmp_path)
    write_file(tmp_path / trail_name("run-2", 1), [header(run_id="run-2")])
    with pytest.raises(ForeignFile, match=r"2 trails.*run-1\.000001\.trail, run-2"):
        Trail(tmp_path)


def test_the_files_of_a_run_are_read_in_their_order(tmp_path):
    for number in (2, 1, 3):
        written(tmp_path, number=number, count=number)
    assert list(Trail(tmp_path)) == [*notes(1), *notes(2), *notes(3)]


def test_a_file_in_the_middle_is_not_the_beginning(tmp_path):
    written(tmp_path)
    with pytest.raises(IncompleteTrail, match=r"name the first one, run-1\.000001\.trail"):
        Trail(written(tmp_path, number=2))


def test_a_missing_file_of_the_run_is_named(tmp_path):
    written(tmp_path)
    written(tmp_path, number=3)
    with pytest.raises(IncompleteTrail, match="is file 3 of its run, where file 2 should be"):
        list(Trail(tmp_path))


def test_a_file_that_was_torn_before_the_last_is_damage(tmp_path):
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    written(tmp_path, number=2)
    with pytest.raises(DamagedTrail, match="the file before it was torn off"):
        list(Trail(tmp_path))


def test_a_last_file_without_its_header_yet_is_a_torn_tail(tmp_path):
    written(tmp_path)
    (tmp_path / trail_name(RUN_ID, 2)).write_bytes(START[:7])
    trail = Trail(tmp_path)
    assert (list(trail), trail.torn.num_bytes) == (notes(5), 7)


def test_a_file_of_another_run_under_this_name_is_refused(tmp_path):
    written(tmp_path)
    written(tmp_path, number=2, run_id="run-2")
    with pytest.raises(ForeignFile, match="is of run run-2, not run-1"):
        list(Trail(tmp_path))


@pytest.mark.parametrize("records", [[], notes(1)])
def test_a_file_that_does_not_begin_with_its_header_is_damaged(tmp_path, records):
    with pytest.raises(DamagedTrail, match="no header"):
        Trail(write_file(tmp_path / "headless", records))


def test_a_second_header_is_damage(tmp_path):
    path = write_file(tmp_path / "two", [header(), header()])
    with pytest.raises(DamagedTrail, match="second header"):
        list(Trail(path))
