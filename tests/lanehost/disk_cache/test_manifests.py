import errno
import os
import stat

import pytest

from lanehost.disk_cache import manifests
from lanehost.disk_cache.interface import FileReason
from lanehost.disk_cache.manifest import pack_manifest
from lanehost.disk_cache.manifests import (
    MAX_ASIDE,
    empty_aside,
    find_manifests,
    manifest_path,
    reason_of,
    remove_manifest,
    sweep_manifests,
    write_manifest,
)
from tests.support.disk_entries import manifest_of

ONE = manifest_of(range(8))
OTHER = manifest_of(range(8), scope="t")


def test_what_is_written_is_found(tmp_path):
    write_manifest(tmp_path, ONE)
    write_manifest(tmp_path, OTHER)
    found = find_manifests(tmp_path)
    assert sorted(found.manifests, key=lambda one: one.owner) == sorted(
        (ONE, OTHER), key=lambda one: one.owner
    )
    assert not found.broken


def test_a_newer_one_takes_the_place_of_the_older(tmp_path):
    write_manifest(tmp_path, ONE)
    newer = manifest_of(range(8), hits=5)
    write_manifest(tmp_path, newer)
    assert find_manifests(tmp_path).manifests == [newer]


def test_what_is_removed_is_gone_and_may_be_removed_again(tmp_path):
    write_manifest(tmp_path, ONE)
    remove_manifest(tmp_path, ONE.header.name)
    remove_manifest(tmp_path, ONE.header.name)
    assert find_manifests(tmp_path).manifests == []


def test_files_are_for_this_user_alone(tmp_path):
    write_manifest(tmp_path, ONE)
    path = manifest_path(tmp_path, ONE.header.name)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_one_that_cannot_be_written_leaves_the_older_one(tmp_path):
    write_manifest(tmp_path, ONE)
    path = manifest_path(tmp_path, ONE.header.name)
    path.with_name(path.name + ".tmp").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_manifest(tmp_path, manifest_of(range(8), hits=5))
    assert find_manifests(tmp_path).manifests == [ONE]


def test_one_that_nobody_could_read_again_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(manifests, "MAX_TOKENS", 7)
    with pytest.raises(OSError, match="that long"):
        write_manifest(tmp_path, ONE)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_manifest(tmp_path / "gone", ONE)


def test_what_is_no_manifest_is_moved_aside_with_its_reason(tmp_path):
    write_manifest(tmp_path, ONE)
    path = manifest_path(tmp_path, ONE.header.name)
    path.with_name("0.manifest").write_bytes(b"")
    path.with_name("1.manifest").write_bytes(pack_manifest(ONE)[:-1])
    path.with_name("2.manifest").write_bytes(pack_manifest(ONE))
    path.with_name("3.manifest").mkdir()
    found = find_manifests(tmp_path)
    assert found.manifests == [ONE]
    assert found.misses == {"torn": 2, "foreign": 2}
    sweep_manifests(tmp_path, found)
    assert len(list((tmp_path / "aside").iterdir())) == 4
    assert not find_manifests(tmp_path).broken


@pytest.mark.timeout(20)
def test_a_pipe_and_a_link_are_no_manifests_and_nobody_waits_for_them(tmp_path):
    write_manifest(tmp_path, ONE)
    path = manifest_path(tmp_path, ONE.header.name)
    os.mkfifo(path.with_name("0.manifest"))
    path.with_name("1.manifest").symlink_to("/dev/zero")
    path.with_name("2.manifest").symlink_to(path)
    found = find_manifests(tmp_path)
    assert (found.manifests, found.misses) == ([ONE], {"foreign": 3})
    sweep_manifests(tmp_path, found)
    assert not find_manifests(tmp_path).broken


def test_a_link_to_a_layout_is_none(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    write_manifest(there, ONE)
    (here / ONE.header.layout).symlink_to(there / ONE.header.layout)
    assert find_manifests(here).manifests == []


@pytest.mark.timeout(20)
@pytest.mark.parametrize("what", ["link", "pipe"])
def test_nothing_is_written_through_what_lies_in_the_way(tmp_path, what):
    write_manifest(tmp_path, ONE)
    path = manifest_path(tmp_path, ONE.header.name)
    temporary, victim = path.with_name(path.name + ".tmp"), tmp_path / "victim"
    victim.write_text("mine")
    if what == "link":
        temporary.symlink_to(victim)
    else:
        os.mkfifo(temporary)
    newer = manifest_of(range(8), hits=5)
    write_manifest(tmp_path, newer)
    assert find_manifests(tmp_path).manifests == [newer]
    assert victim.read_text() == "mine"


def test_one_beyond_its_bound_is_foreign(tmp_path, monkeypatch):
    write_manifest(tmp_path, ONE)
    monkeypatch.setattr(manifests, "MAX_MANIFEST_BYTES", len(pack_manifest(ONE)) - 1)
    assert find_manifests(tmp_path).misses == {"foreign": 1}


def test_temporary_files_are_removed(tmp_path):
    write_manifest(tmp_path, ONE)
    left = manifest_path(tmp_path, ONE.header.name).with_suffix(".manifest.tmp")
    left.write_bytes(b"half")
    sweep_manifests(tmp_path, find_manifests(tmp_path))
    assert not left.exists()


def test_what_is_aside_can_be_emptied_and_links_are_not_followed(tmp_path):
    empty_aside(tmp_path)
    aside, mine = tmp_path / "aside", tmp_path / "mine"
    (mine / "file").mkdir(parents=True)
    (aside / "folder" / "in_it").mkdir(parents=True)
    (aside / "file").touch()
    (aside / "link").symlink_to(mine)
    empty_aside(tmp_path)
    assert (list(aside.iterdir()), (mine / "file").exists()) == ([], True)


def test_of_what_is_aside_the_newest_are_kept(tmp_path):
    folder = tmp_path / "layout"
    folder.mkdir()
    for number in range(MAX_ASIDE + 5):
        path = folder / f"{number:03}.manifest"
        path.write_bytes(b"")
        os.utime(path, (number, number))
    sweep_manifests(tmp_path, find_manifests(tmp_path))
    names = sorted(path.name for path in (tmp_path / "aside").iterdir())
    assert names == [f"layout.{number:03}.manifest" for number in range(5, MAX_ASIDE + 5)]


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, FileReason.NO_SPACE),
        (errno.EDQUOT, FileReason.NO_SPACE),
        (errno.EFBIG, FileReason.NO_SPACE),
        (errno.EACCES, FileReason.DENIED),
        (errno.EROFS, FileReason.DENIED),
        (errno.ENOENT, FileReason.GONE),
        (errno.ELOOP, FileReason.FOREIGN),
        (errno.ENXIO, FileReason.FOREIGN),
        (errno.EIO, FileReason.IO),
        (None, FileReason.IO),
    ],
)
def test_what_the_system_says_is_a_reason(number, reason):
    assert reason_of(OSError(number, "") if number else OSError()) is reason
