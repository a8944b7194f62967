import asyncio
import os
import shutil
import threading

import pytest
import structlog

from lanehost.disk_cache import folder as folder_module
from lanehost.disk_cache.folder import Folder, own_folder, owning_folder
from lanehost.disk_cache.interface import FileReason
from lanehost.disk_cache.manifests import find_manifests, manifest_path, write_manifest
from lanehost.disk_cache.shelf import EmptyAside, RemoveManifest, WriteManifest
from lanehost.errors import StartupFailed
from tests.support.disk_entries import manifest_of

ONE = manifest_of(range(8))


async def outcomes(folder: Folder, *works):
    """Have works done; returns what became of them."""
    told: asyncio.Queue = asyncio.Queue()
    folder.tell(told.put_nowait)
    for work in works:
        folder.start(work)
    return [await asyncio.wait_for(told.get(), 10) for _ in works]


def write(order_id=1):
    return WriteManifest(order_id=order_id, manifest=ONE)


async def test_works_are_done_in_order_and_told_on_the_loop(tmp_path):
    with own_folder(tmp_path) as folder:
        done = await outcomes(
            folder, write(), RemoveManifest(order_id=2, name=ONE.header.name), write(3)
        )
        assert [(one.order_id, one.reason) for one in done] == [(1, None), (2, None), (3, None)]
    assert find_manifests(tmp_path).manifests == [ONE]


async def test_what_was_moved_aside_is_emptied(tmp_path):
    (tmp_path / "aside").mkdir()
    (tmp_path / "aside" / "file").touch()
    with own_folder(tmp_path) as folder:
        (outcome,) = await outcomes(folder, EmptyAside(order_id=1))
    assert (outcome.reason, list((tmp_path / "aside").iterdir())) == (None, [])


async def test_what_was_asked_for_is_done_before_the_end(tmp_path):
    with own_folder(tmp_path) as folder:
        folder.start(write())
    assert find_manifests(tmp_path).manifests == [ONE]


async def test_it_knows_what_was_there(tmp_path):
    write_manifest(tmp_path, ONE)
    manifest_path(tmp_path, ONE.header.name).with_name("0.manifest").write_bytes(b"")
    with structlog.testing.capture_logs() as logs, own_folder(tmp_path) as folder:
        assert folder.found.manifests == [ONE]
        assert folder.found.misses == {"torn": 1}
    assert [entry["event"] for entry in logs] == ["disk_cache_opened", "disk_cache_swept"]


async def test_a_second_owner_is_refused_while_there_is_one(tmp_path):
    refused = pytest.raises(StartupFailed, match="another server uses")
    with own_folder(tmp_path / "new" / "folder") as first, refused:
        own_folder(first.path).__enter__()
    with own_folder(first.path) as second:
        assert second.number == first.number + 1


async def test_who_is_not_the_owner_any_more_writes_nothing(tmp_path):
    with own_folder(tmp_path) as folder:
        (tmp_path / "lock").write_text("99\n")
        (outcome,) = await outcomes(folder, write())
    assert (outcome.reason, find_manifests(tmp_path).manifests) == (FileReason.GONE, [])
    assert outcome.is_disowned


async def test_a_folder_that_disappears_is_a_reason(tmp_path):
    with own_folder(tmp_path / "folder") as folder:
        shutil.rmtree(folder.path)
        (outcome,) = await outcomes(folder, write())
        assert outcome.reason is FileReason.GONE
        assert (outcome.is_done, outcome.is_disowned) == (False, False)


async def test_a_bug_costs_its_work_and_no_more(tmp_path, monkeypatch):
    with own_folder(tmp_path) as folder:
        with monkeypatch.context() as bug:
            bug.setattr(folder_module, "write_manifest", lambda *_: 1 / 0)
            (first,) = await outcomes(folder, write())
        (second,) = await outcomes(folder, write(2))
    assert (first.reason, second.reason) == (FileReason.IO, None)


async def test_a_disk_that_hangs_holds_up_neither_the_loop_nor_the_end(tmp_path, monkeypatch):
    hung, goes_on = threading.Event(), threading.Event()

    def hang(*_):
        hung.set()
        assert goes_on.wait(30)

    monkeypatch.setattr(folder_module, "write_manifest", hang)
    monkeypatch.setattr(folder_module, "CLOSE_TIMEOUT_S", 0.3)
    num_turns = 0

    async def turn():
        nonlocal num_turns
        while True:
            num_turns += 1
            await asyncio.sleep(0.01)

    turning = asyncio.create_task(turn())
    with structlog.testing.capture_logs() as logs:
        async with owning_folder(tmp_path) as folder:
            folder.start(write())
            await asyncio.to_thread(hung.wait, 10)
            num_before = num_turns
    assert num_turns > num_before + 5
    assert [one["work"] for one in logs if one["event"] == "disk_cache_fault"] == ["close"]
    # The disk may still write: nobody else owns the folder.
    with pytest.raises(StartupFailed, match="another server"):
        own_folder(tmp_path).__enter__()
    turning.cancel()
    goes_on.set()
    assert folder.close()


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StartupFailed, match="cannot use"):
        own_folder(tmp_path / "file").__enter__()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("what", ["link", "pipe"])
def test_a_lock_that_is_no_file_is_refused_and_nothing_is_written_through_it(tmp_path, what):
    folder, victim = tmp_path / "folder", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("mine")
    if what == "link":
        (folder / "lock").symlink_to(victim)
    else:
        os.mkfifo(folder / "lock")
    with pytest.raises(StartupFailed, match="cannot use"):
        own_folder(folder).__enter__()
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_in_which_others_may_write_is_refused(tmp_path, mode):
    tmp_path.chmod(mode)
    with pytest.raises(StartupFailed, match="others may write"):
        own_folder(tmp_path).__enter__()
    assert not (tmp_path / "lock").exists()


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(StartupFailed, match="another user's"):
        own_folder(tmp_path).__enter__()


def test_a_lock_of_something_else_begins_anew(tmp_path):
    (tmp_path / "lock").write_text("none of ours")
    with own_folder(tmp_path) as folder:
        assert folder.number == 1


def test_its_thread_has_ended_with_it(tmp_path):
    async def use():
        with own_folder(tmp_path) as folder:
            await outcomes(folder, write())

    asyncio.run(use())
    assert not any(one.name.startswith("disk-cache") for one in threading.enumerate())
