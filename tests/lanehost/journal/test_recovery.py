"""What a master finds in the journal of one that is gone."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from lanehost.errors import StartupFailed
from lanehost.journal.records import Ready
from lanehost.journal.recovery import recover, segment_path
from lanehost.journal.segment import Disk, Segment
from tests.support.journals import HEADER, MODEL, accepted, drawn, ended

LIMIT = 1 << 20
BEGUN = [HEADER, accepted(), drawn(1, 0, 5), Ready()]


def write(folder, number, records):
    segment = Segment(segment_path(folder, number), Disk())
    segment.append(records)
    segment.close()
    return segment.path


def found(folder, model=MODEL, limit=LIMIT):
    return recover(folder, model, max_file_bytes=limit)


def tokens(recovered):
    return {one.accepted.number: one.token_ids for one in recovered.streams.open}


def test_an_empty_folder_has_nothing(tmp_path):
    (tmp_path / "lock").touch()
    (tmp_path / "000001.journal.bak").touch()
    recovered = found(tmp_path)
    assert (recovered.paths, recovered.last_number, recovered.streams.num_open) == ((), 0, 0)


def test_the_newest_file_that_says_ready_is_read(tmp_path):
    write(tmp_path, 3, [*BEGUN, drawn(1, 1, 6)])
    write(tmp_path, 4, [*BEGUN, drawn(1, 1, 7)])
    recovered = found(tmp_path)
    assert tokens(recovered) == {1: [5, 7]}
    assert (recovered.last_number, len(recovered.paths)) == (4, 2)


@pytest.mark.parametrize("num_records", [0, 1, 2, 3])
def test_a_file_that_was_only_begun_is_passed_over_for_the_one_before(tmp_path, num_records):
    write(tmp_path, 3, [*BEGUN, drawn(1, 1, 6)])
    write(tmp_path, 4, BEGUN[:num_records])
    assert tokens(found(tmp_path)) == {1: [5, 6]}


def test_a_file_that_was_only_begun_is_read_when_there_is_no_other(tmp_path):
    write(tmp_path, 1, BEGUN[:3])
    assert tokens(found(tmp_path)) == {1: [5]}


def test_a_journal_of_another_model_is_refused_with_both_values(tmp_path):
    write(tmp_path, 1, BEGUN)
    for field, value in (("weights_digest", "w2"), ("text_digest", "t2"), ("weights", "int4")):
        with pytest.raises(StartupFailed, match=f"{field} was .*, and is {value}") as refused:
            found(tmp_path, replace(MODEL, **{field: value}))
        assert str(getattr(MODEL, field)) in str(refused.value)
    with pytest.raises(StartupFailed, match="1 open replies"):
        found(tmp_path, replace(MODEL, eos_token_ids=(2, 3)))


def test_a_journal_of_another_model_that_holds_nothing_is_no_hindrance(tmp_path):
    write(tmp_path, 1, [HEADER, Ready()])
    assert found(tmp_path, replace(MODEL, weights_digest="w2")).streams.num_open == 0


def test_damage_is_logged_by_file_and_record_and_the_rest_is_read(tmp_path):
    path = write(tmp_path, 1, [*BEGUN, drawn(1, 1, 6), accepted(2), drawn(2, 0, 7)])
    content = bytearray(path.read_bytes())
    at = content.index(b"\xa4drawn"[1:], content.index(b"ready"))
    content[at - 12] ^= 1
    path.write_bytes(content)
    with capture_logs() as logs:
        recovered = found(tmp_path)
    (damaged, read) = logs
    assert (damaged["event"], damaged["log_level"]) == ("journal_damaged", "error")
    assert (damaged["path"], damaged["num_records"]) == (str(path), 1)
    assert "record 4 at byte" in damaged["first"]
    assert (read["event"], read["num_open"]) == ("journal_read", 2)
    assert tokens(recovered) == {1: [5], 2: [7]}


def test_a_header_that_has_changed_is_refused(tmp_path):
    path = write(tmp_path, 1, BEGUN)
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    with pytest.raises(StartupFailed, match=r"header of .* has changed.*move the file away"):
        found(tmp_path)


def test_a_second_header_is_damage(tmp_path):
    write(tmp_path, 1, [*BEGUN, HEADER, drawn(1, 1, 6)])
    recovered = found(tmp_path)
    assert (recovered.damage.num_records, tokens(recovered)) == (1, {1: [5, 6]})


def test_a_file_above_the_bound_is_not_read(tmp_path):
    path = write(tmp_path, 1, BEGUN)
    with path.open("ab") as file:
        file.truncate(3 << 20)
    with pytest.raises(StartupFailed, match=f"{3 << 20} bytes, limit {LIMIT} .--journal-mib"):
        found(tmp_path)


def test_ended_replies_are_found_and_failed_ones_are_not(tmp_path):
    write(tmp_path, 1, [*BEGUN, ended(1, 1), accepted(2), replace(ended(2, 0), finished=None)])
    recovered = found(tmp_path)
    assert [one.accepted.number for one in recovered.streams.kept] == [1]
    assert recovered.streams.num_open == 0
