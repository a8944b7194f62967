"""A rank's folder: whole files or none, its own files swept, the system's words as faults."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ranks.disk.file_format import FileMiss
from ranks.disk.folder import ASIDE, MAX_ASIDE, FileCalls, Folder
from ranks.wire.file_messages import FileFault, FileName

NAME = FileName(layout="1a" * 32, key="2b" * 32)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path, rank=0, world_size=1)


def write(folder, name=NAME, data=b"whole"):
    with folder.writing(name) as file:
        os.write(file, data)


def in_layout(folder):
    return sorted(path.name for path in folder.path_of(NAME).parent.iterdir())


def test_a_file_has_its_name_only_once_it_is_whole_and_only_its_user_reads_it(folder):
    with folder.writing(NAME) as file:
        os.write(file, b"half")
        assert in_layout(folder) == [f".{NAME.key}.r0of1.{os.getpid()}.tmp"]
    assert in_layout(folder) == [f"{NAME.key}.r0of1.safetensors"]
    path = folder.path_of(NAME)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_file_and_folders_are_synced_before_a_save_is_done(tmp_path):
    synced = []
    calls = FileCalls(
        sync=lambda file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
    )
    folder = Folder(tmp_path, rank=0, world_size=1, calls=calls)
    write(folder)
    parent = str(folder.path_of(NAME).parent)
    temporary = f"{parent}/.{NAME.key}.r0of1.{os.getpid()}.tmp"
    assert synced == [str(tmp_path), temporary, parent]


def test_a_write_that_fails_leaves_what_was_there(folder):
    write(folder)
    with pytest.raises(KeyError), folder.writing(NAME) as file:
        raise KeyError(os.write(file, b"half"))
    assert in_layout(folder) == [f"{NAME.key}.r0of1.safetensors"]
    assert folder.path_of(NAME).read_bytes() == b"whole"


def test_a_link_in_the_place_of_the_new_file_is_not_followed(folder, tmp_path):
    write(folder)
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    folder.path_of(NAME).with_name(f".{NAME.key}.r0of1.{os.getpid()}.tmp").symlink_to(victim)
    with pytest.raises(FileMiss) as miss:
        write(folder)
    assert miss.value.fault is FileFault.FOREIGN
    assert victim.read_bytes() == b"mine"


def test_a_folder_that_is_gone_is_told(folder, tmp_path):
    gone = Folder(tmp_path / "never", rank=0, world_size=1)
    with pytest.raises(FileMiss) as miss:
        write(gone)
    assert miss.value.fault is FileFault.GONE
    with pytest.raises(FileMiss) as miss:
        gone.open(NAME)
    assert miss.value.fault is FileFault.MISSING
    gone.delete([NAME])
    gone.set_aside([NAME])
    gone.sweep([NAME])


def test_a_file_in_the_place_of_a_folder_is_told(folder, tmp_path):
    (tmp_path / NAME.layout).write_bytes(b"")
    with pytest.raises(FileMiss) as miss:
        write(folder)
    assert miss.value.fault is FileFault.GONE
    folder.sweep([])


def test_what_a_rank_removes_is_its_own_whatever_the_world_size(tmp_path):
    ranks = [Folder(tmp_path, rank=rank, world_size=2) for rank in (0, 1)]
    four = [Folder(tmp_path, rank=rank, world_size=4) for rank in range(4)]
    for folder in (*ranks, *four):
        write(folder)
    ranks[1].delete([NAME])
    numbers = [name.split(".")[1] for name in in_layout(ranks[0])]
    assert numbers == ["r0of2", "r0of4", "r2of4"]
    ranks[0].delete([NAME])
    assert in_layout(ranks[0]) == []


def test_only_the_files_of_the_entry_are_removed(folder):
    other = replace(NAME, key="2c" * 32)
    write(folder)
    write(folder, other)
    folder.delete([NAME])
    assert in_layout(folder) == [f"{other.key}.r0of1.safetensors"]


@pytest.mark.parametrize("act", ["delete", "set_aside"])
def test_of_many_entries_each_layout_is_listed_once(folder, monkeypatch, act):
    names = [replace(NAME, key=f"{number:064x}") for number in range(20)]
    far = replace(NAME, layout="1b" * 32)
    for name in (*names, far):
        write(folder, name)
    listed, iterdir = [], Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: listed.append(path) or iterdir(path))
    getattr(folder, act)([*names, far])
    assert listed.count(folder.path_of(NAME).parent) == 1
    assert in_layout(folder) == []
    assert not folder.path_of(far).exists()


def test_one_that_cannot_be_removed_is_told_and_the_others_of_its_layout_go(folder):
    names = [replace(NAME, key=f"{number:064x}") for number in range(5)]
    for name in names:
        write(folder, name)
    stuck = folder.path_of(names[2])
    stuck.unlink()
    stuck.mkdir()
    with pytest.raises(FileMiss):
        folder.delete(names)
    assert in_layout(folder) == [stuck.name]


def test_a_sweep_removes_what_is_half_or_unknown_and_leaves_the_rest(tmp_path):
    folder = Folder(tmp_path, rank=0, world_size=2)
    unknown, far = replace(NAME, key="2c" * 32), replace(NAME, layout="1b" * 32)
    fellow = Folder(tmp_path, rank=1, world_size=2)
    for name in (NAME, unknown, far):
        write(folder, name)
        write(fellow, name)
    parent = folder.path_of(NAME).parent
    for left in (f".{NAME.key}.r0of2.7.tmp", f".{NAME.key}.r1of2.7.tmp", "notes.txt"):
        (parent / left).write_bytes(b"")
    (tmp_path / "lock").write_bytes(b"")
    folder.sweep([NAME])
    assert in_layout(folder) == sorted(
        [
            f".{NAME.key}.r1of2.7.tmp",
            f"{NAME.key}.r0of2.safetensors",
            f"{NAME.key}.r1of2.safetensors",
            f"{unknown.key}.r1of2.safetensors",
            "notes.txt",
        ]
    )
    assert not folder.path_of(far).exists()
    assert fellow.path_of(far).exists()
    assert not (tmp_path / ASIDE).exists()
    assert (tmp_path / "lock").exists()


def test_a_sweep_leaves_what_is_being_written_now(folder):
    with folder.writing(NAME) as file:
        os.write(file, b"whole")
        folder.sweep([NAME])
    assert in_layout(folder) == [f"{NAME.key}.r0of1.safetensors"]


def test_what_was_moved_aside_stays_a_while_and_never_grows_for_ever(folder, tmp_path):
    names = [replace(NAME, key=f"{number:064x}") for number in range(MAX_ASIDE + 3)]
    for name in names:
        write(folder, name)
        folder.set_aside([name])
        os.utime(tmp_path / ASIDE)
    left = {path.name[65:129] for path in (tmp_path / ASIDE).iterdir()}
    assert len(left) == MAX_ASIDE
    assert names[-1].key in left


def test_what_is_set_aside_again_takes_the_place_of_the_first(folder, tmp_path):
    for data in (b"first", b"second"):
        write(folder, data=data)
        folder.set_aside([NAME])
    (aside,) = (tmp_path / ASIDE).iterdir()
    assert aside.read_bytes() == b"second"
