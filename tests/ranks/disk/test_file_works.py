"""Works on files: what was saved is adopted bit for bit, and anything else is a miss."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from ranks.disk.file_works import MAX_CHECKED
from ranks.disk.snapshot import PoolGone
from ranks.wire.file_messages import (
    CheckFile,
    DeleteFiles,
    DropFile,
    FileFault,
    FileName,
    FileOrder,
    SaveFile,
    SetAside,
    SweepFiles,
)
from tests.support.disk_files import HEADER, NAME, STATE, blocks, disk_rank, named

FROM, TO = (5, 0, 11), (3, 9, 4)


@pytest.fixture
def saved(tmp_path):
    rank = disk_rank(tmp_path, seed=1)
    assert rank.save(FROM).fault is None
    yield rank
    rank.works.close()


def test_what_was_saved_is_adopted_bit_for_bit_and_nothing_else_is_touched(saved, tmp_path):
    other = disk_rank(tmp_path, seed=2)
    before = other.store.pool.clone()
    for done in (other.check(), other.adopt(TO)):
        assert (done.fault, done.num_bytes) == (None, saved.path.stat().st_size)
    assert torch.equal(blocks(other.store, TO), blocks(saved.store, FROM))
    rest = [block for block in range(12) if block not in TO]
    assert torch.equal(
        blocks(other.store, (-1, *rest)), before[:, :, :, [0, *(b + 1 for b in rest)]]
    )


def test_a_file_is_one_of_safetensors_with_the_state_by_name(saved):
    tensors = load_file(saved.path)
    assert list(tensors) == sorted(tensor.name for tensor in STATE)
    for number, tensor in enumerate(STATE):
        layer, part = divmod(number, 2)
        assert torch.equal(tensors[tensor.name], blocks(saved.store, FROM)[layer, part])


@pytest.mark.parametrize("num_bytes", [1, 3000, 1 << 20])
def test_a_file_is_the_same_however_much_is_written_at_once(
    saved, tmp_path, monkeypatch, num_bytes
):
    before = saved.path.read_bytes()
    monkeypatch.setattr("ranks.disk.file_works._WRITE_BYTES", num_bytes)
    assert saved.save(FROM).fault is None
    assert saved.path.read_bytes() == before


def test_the_checksum_covers_header_and_data(saved):
    payload = saved.path.read_bytes()
    at = payload.index(b'"checksum":"') + 12
    blank = payload[8:at] + b"0" * 32 + payload[at + 32 :]
    assert xxhash.xxh3_128_hexdigest(blank) == payload[at : at + 32].decode()


def test_a_file_that_is_there_is_replaced(saved):
    first = blocks(saved.store, FROM).clone()
    saved.store.pool.neg_()
    assert saved.save(FROM).fault is None
    assert saved.check().fault is None
    assert saved.adopt(TO).fault is None
    assert torch.equal(blocks(saved.store, TO), -first)


@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_what_is_adopted_is_what_was_checked_whatever_is_there_by_now(saved, how):
    expected = blocks(saved.store, FROM).clone()
    assert saved.check().fault is None
    if how == "replaced":
        saved.store.pool.neg_()
        assert saved.save(FROM).fault is None
    else:
        saved.path.unlink()
    assert saved.adopt(TO).fault is None
    assert torch.equal(blocks(saved.store, TO), expected)


def test_a_file_that_is_written_over_between_the_phases_is_not_adopted(saved):
    assert saved.check().fault is None
    with saved.path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(bytes([saved.path.read_bytes()[-1] ^ 1]))
    assert saved.adopt(TO).fault is FileFault.CHECKSUM
    assert saved.check().fault is FileFault.CHECKSUM
    assert saved.adopt(TO).fault is FileFault.UNCHECKED


def test_a_file_that_is_cut_between_the_phases_is_not_adopted(saved):
    assert saved.check().fault is None
    os.truncate(saved.path, saved.path.stat().st_size - 1)
    assert saved.adopt(TO).fault is FileFault.TORN


@pytest.mark.parametrize("at", range(5))
def test_a_save_that_is_dropped_gives_its_file_no_name(tmp_path, at):
    rank = disk_rank(tmp_path, seed=1)
    calls = iter(range(10))

    def between():
        if next(calls) == at:
            for name in (named(1).name, NAME):
                assert rank.do(DropFile(name=name)).fault is None

    order = FileOrder(order_id=1, epoch=1, work=SaveFile(header=HEADER, block_ids=FROM))
    assert rank.works.do(order, between).fault is FileFault.BUSY
    assert list(rank.path.parent.iterdir()) == []
    assert rank.save(FROM).fault is None
    assert rank.check().fault is None


def test_a_drop_of_another_name_ends_no_save(tmp_path):
    rank = disk_rank(tmp_path, seed=1)
    order = FileOrder(order_id=1, epoch=1, work=SaveFile(header=HEADER, block_ids=FROM))
    done = rank.works.do(order, lambda: rank.do(DropFile(name=named(1).name)) and None)
    assert done.fault is None


def open_files():
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_no_file_stays_open(saved):
    before = open_files()
    assert saved.check().fault is None
    assert saved.check().fault is None
    assert len(open_files()) == len(before) + 1
    assert saved.adopt(TO).fault is None
    assert open_files() == before
    saved.check()
    assert saved.adopt((1,)).fault is FileFault.NO_ROOM
    assert open_files() == before
    saved.check()
    saved.works.close()
    assert open_files() == before
    saved.path.write_bytes(b"")
    saved.check()
    assert open_files() == before


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(data=st.data())
def test_a_byte_that_changed_anywhere_is_a_miss(saved, data):
    payload = saved.path.read_bytes()
    at = data.draw(st.integers(0, len(payload) - 1))
    changed = bytearray(payload)
    changed[at] ^= data.draw(st.integers(1, 255))
    _assert_misses(saved, bytes(changed))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.data())
def test_a_file_that_is_shorter_or_longer_is_a_miss(saved, data):
    payload = saved.path.read_bytes()
    end = data.draw(st.integers(0, len(payload) - 1))
    _assert_misses(saved, payload[:end])
    _assert_misses(saved, payload + data.draw(st.binary(min_size=1, max_size=40)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(head=st.binary(max_size=12), body=st.binary(max_size=400))
def test_whatever_is_in_a_file_is_a_miss(saved, head, body):
    _assert_misses(saved, head + body)
    _assert_misses(saved, len(body).to_bytes(8, "little") + body)


def _assert_misses(rank, payload):
    """The file is a miss, nothing of it is adopted, and the rank goes on."""
    kept = rank.path.read_bytes()
    before = rank.store.pool.clone()
    rank.path.write_bytes(payload)
    done = rank.check()
    assert done.fault is not None, "taken"
    assert (done.message != "", done.num_bytes) == (True, 0)
    assert rank.adopt(TO).fault is FileFault.UNCHECKED
    assert torch.equal(rank.store.pool, before)
    rank.path.write_bytes(kept)
    assert rank.check().fault is None
    rank.do(DropFile(name=NAME))


def test_data_that_changed_is_told_from_data_that_is_missing(saved):
    payload = saved.path.read_bytes()
    saved.path.write_bytes(payload[:-1] + bytes([payload[-1] ^ 1]))
    assert saved.check().fault is FileFault.CHECKSUM
    saved.path.write_bytes(payload[:-1])
    assert saved.check().fault is FileFault.TORN
    saved.path.write_bytes(payload + b"x")
    assert saved.check().fault is FileFault.FOREIGN
    saved.path.unlink()
    assert saved.check().fault is FileFault.MISSING


def test_a_file_whose_end_is_not_written_is_a_miss_though_it_is_as_long(saved):
    size = saved.path.stat().st_size
    os.truncate(saved.path, size // 2)
    os.truncate(saved.path, size)
    assert saved.check().fault is FileFault.CHECKSUM


@pytest.mark.parametrize(
    ("wanted", "fault"),
    [
        (replace(HEADER, tokens_digest="ff" * 32), FileFault.TOKENS),
        (replace(HEADER, num_tokens=32), FileFault.TOKENS),
        (replace(HEADER, num_tokens=33), FileFault.NO_ROOM),
    ],
)
def test_a_file_of_other_tokens_is_a_miss(saved, wanted, fault):
    assert saved.check(wanted).fault is fault


@pytest.mark.parametrize("part", ["layout", "key"])
def test_a_file_under_the_name_of_another_entry_is_a_miss(saved, part):
    name = FileName(**{"layout": NAME.layout, "key": NAME.key, part: "ff" * 32})
    other = saved.folder.path_of(name)
    other.parent.mkdir(exist_ok=True)
    other.write_bytes(saved.path.read_bytes())
    assert saved.check(replace(HEADER, name=name)).fault is FileFault.FOREIGN


def test_the_file_of_another_rank_is_a_miss(tmp_path):
    ranks = [disk_rank(tmp_path, seed=1, rank=rank, world_size=2) for rank in (0, 1)]
    for rank in ranks:
        assert rank.save(FROM).fault is None
    first, second = (rank.path.read_bytes() for rank in ranks)
    ranks[0].path.write_bytes(second)
    ranks[1].path.write_bytes(first)
    assert [rank.check().fault for rank in ranks] == [FileFault.FOREIGN] * 2


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_only_a_regular_file_is_read(saved, tmp_path, kind):
    saved.path.rename(tmp_path / "elsewhere")
    match kind:
        case "link":
            saved.path.symlink_to(tmp_path / "elsewhere")
        case "folder":
            saved.path.mkdir()
        case "pipe":
            os.mkfifo(saved.path)
    assert saved.check().fault is FileFault.FOREIGN


@pytest.mark.parametrize(
    ("block_ids", "message"),
    [((1, 2), "2 blocks"), ((1, 2, 2), "2 blocks"), ((1, 2, 12), "block 12 was named"), ((), "0")],
)
def test_blocks_that_do_not_fit_are_refused_and_nothing_is_touched(saved, block_ids, message):
    before = saved.store.pool.clone()
    saved.check()
    for done in (saved.adopt(block_ids), saved.save(block_ids, named(9))):
        assert done.fault is FileFault.NO_ROOM
        assert message in done.message
    assert torch.equal(saved.store.pool, before)
    assert not saved.folder.path_of(named(9).name).exists()


def test_nothing_is_adopted_that_was_not_checked_or_was_dropped_or_adopted(saved):
    assert saved.adopt(TO).fault is FileFault.UNCHECKED
    saved.check()
    assert saved.do(DropFile(name=NAME)).fault is None
    assert saved.adopt(TO).fault is FileFault.UNCHECKED
    saved.check()
    assert saved.adopt(TO).fault is None
    assert saved.adopt(TO).fault is FileFault.UNCHECKED


def test_only_so_many_checked_files_are_held(saved):
    for number in range(MAX_CHECKED + 1):
        saved.save(FROM, named(number))
    for number in range(MAX_CHECKED):
        assert saved.check(named(number)).fault is None
    assert saved.check(named(MAX_CHECKED)).fault is FileFault.BUSY
    assert saved.check(named(0)).fault is None
    saved.do(DropFile(name=named(1).name))
    assert saved.check(named(MAX_CHECKED)).fault is None


@pytest.mark.parametrize(
    "work", [SaveFile(header=HEADER, block_ids=FROM), CheckFile(header=HEADER)]
)
def test_a_work_is_given_up_between_two_copies_and_leaves_nothing(saved, work):
    looks = []

    def between():
        looks.append(1)
        raise PoolGone

    kept = saved.path.read_bytes()
    done = saved.works.do(FileOrder(order_id=1, epoch=1, work=work), between)
    assert (done.fault, len(looks)) == (FileFault.GONE, 1)
    assert [path.name for path in saved.path.parent.iterdir()] == [saved.path.name]
    assert saved.path.read_bytes() == kept
    assert saved.adopt(TO).fault is FileFault.UNCHECKED


def test_the_pool_is_not_touched_once_it_was_taken_back(saved):
    saved.check()
    saved.loan.take_back()
    before = saved.store.pool.clone()
    assert saved.adopt(TO).fault is FileFault.GONE
    assert saved.save(FROM, named(7)).fault is FileFault.GONE
    assert torch.equal(saved.store.pool, before)
    assert not saved.folder.path_of(named(7).name).exists()


def test_files_are_deleted_set_aside_and_swept_and_none_there_is_fine(saved):
    for work in (DeleteFiles(names=(NAME,)), SetAside(names=(NAME,))):
        assert saved.save(FROM).fault is None
        assert saved.do(work).fault is None
        assert saved.check().fault is FileFault.MISSING
        assert saved.do(work).fault is None
    saved.save(FROM)
    saved.save(FROM, named(1))
    assert saved.do(SweepFiles(known=(NAME,))).fault is None
    assert saved.check().fault is None
    assert saved.check(named(1)).fault is FileFault.MISSING


def test_of_many_that_are_deleted_one_that_cannot_be_is_told_and_the_others_go(tmp_path):
    rank = disk_rank(tmp_path, seed=1)
    rank.save(FROM)
    stuck = replace(NAME, layout="9" * 64)
    rank.folder.path_of(stuck).mkdir(parents=True)
    assert rank.do(DeleteFiles(names=(stuck, NAME))).fault is not None
    assert rank.check().fault is FileFault.MISSING
