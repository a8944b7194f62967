"""Files on disks that are full, closed, gone, or whose writer is killed: misses, never more.

A thousand kills: `pytest -m soak tests/integration/test_faulty_disks.py`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lanehost import Client
from tests.support.disk_files import disk_rank, named
from tests.support.served import serving
from tests.support.two_hosts import ROOT

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(300)]
PROGRAM = (sys.executable, "-m", "tests.support.faulty_disk")
ON_10_MB = 'mount -t tmpfs -o size=10m tmpfs "$0" && exec "$@"'
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
IN_MOUNTS = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
# A user that no file knows: even who runs this as root is bound by modes then.
AS_NOBODY = ("unshare", "--user")


def can_unshare(*command: str) -> bool:
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


needs_mounts = pytest.mark.skipif(
    not can_unshare(*IN_MOUNTS, 'mount -t tmpfs tmpfs "$0"', "/mnt"),
    reason="the kernel lets this user make no mounts of its own",
)
needs_users = pytest.mark.skipif(
    not can_unshare(*AS_NOBODY, "true"), reason="the kernel makes no namespaces of users"
)


def run(*command: str, **options) -> dict:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, env=env, cwd=ROOT, **options
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@needs_mounts
def test_a_full_disk_costs_what_does_not_fit_and_serves_again_once_there_is_room(tmp_path):
    told = run(*IN_MOUNTS, ON_10_MB, str(tmp_path), *PROGRAM, "fill", str(tmp_path), "20")
    fitting = told["first"].index("no_space")
    assert fitting >= 4
    assert told["first"] == [None] * fitting + ["no_space"] * (20 - fitting)
    assert told["again"] == [None] * fitting + ["no_space"] * (10 - fitting)
    assert told["checked"] == [None] * fitting + ["missing"] * (20 - fitting)
    assert told["left"] == []


@needs_mounts
def test_a_disk_that_is_read_only_is_read_and_not_written(tmp_path):
    _save_some(tmp_path)
    told = run(*IN_MOUNTS, READ_ONLY, str(tmp_path), *PROGRAM, "fill", str(tmp_path), "4")
    assert told["first"] == ["denied"] * 4
    assert told["deleted"] == "denied"
    assert told["checked"] == [None, None, "missing", "missing"]


@needs_users
def test_a_folder_that_may_not_be_written_is_read_and_not_written(tmp_path):
    _save_some(tmp_path)
    (folder,) = (one for one in tmp_path.iterdir() if one.is_dir())
    folder.chmod(0o500)
    try:
        told = run(*AS_NOBODY, *PROGRAM, "fill", str(tmp_path), "4")
    finally:
        folder.chmod(0o700)
    assert told["first"] == ["denied"] * 4
    assert told["checked"] == [None, None, "missing", "missing"]


@needs_users
def test_a_file_that_may_not_be_read_is_a_miss(tmp_path):
    rank = _save_some(tmp_path)
    rank.folder.path_of(named(0).name).chmod(0)
    (folder,) = (one for one in tmp_path.iterdir() if one.is_dir())
    folder.chmod(0o500)
    try:
        told = run(*AS_NOBODY, *PROGRAM, "fill", str(tmp_path), "2")
    finally:
        folder.chmod(0o700)
    assert told["checked"] == ["denied", None]


def _save_some(path: Path):
    rank = disk_rank(path, seed=1, head_dim=1024)
    for number in (0, 1):
        assert rank.save((5, 0, 11), named(number)).fault is None
    return rank


def _check_kills(told: dict, count: int) -> None:
    assert told["whole"] + told["missing"] == 4 * count
    assert not set(told) - {"whole", "missing", "torn", "left"}, told
    assert told["left"] == 0


def test_whoever_is_killed_while_it_writes_leaves_whole_files_or_none(tmp_path):
    _check_kills(run(*PROGRAM, "kill", str(tmp_path), "20", "1"), 20)


@pytest.mark.soak
def test_a_thousand_kills_leave_whole_files_or_none(tmp_path):
    told = run(*PROGRAM, "kill", str(tmp_path), "1000", "2")
    print(told)
    _check_kills(told, 1000)
    # They died in the middle of writes too.
    assert told["torn"] >= 100


@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.soak)])
def test_a_master_that_is_killed_while_it_writes_leaves_whole_manifests_or_none(tmp_path, count):
    told = run(*PROGRAM, "manifests", str(tmp_path), str(count), "3")
    print(told)
    assert told["whole"] >= count
    assert (told["broken"], told["mixed"], told["left"], told["lost"]) == (0, 0, 0, 0)
    assert count < 1000 or told["torn"] >= 20


@pytest.mark.model
@needs_mounts
def test_a_server_on_a_full_disk_replies_as_without_one_and_ends_in_order(tmp_path):
    """A prompt of these takes 4.6 MB, and is saved with its reply, too."""
    prompts = [[number + 17, *range(100, 299)] for number in range(4)]

    def replies(served):
        with Client(served.grpc_address) as client:
            return [
                client.generate(token_ids=prompt, max_tokens=8, ignore_eos=True)
                for prompt in prompts
            ]

    with serving(tmp_path, "--prompt-cache", "off") as served:
        expected = [reply.token_ids for reply in replies(served)]
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ("--disk-cache", str(disk / "cache"), "--disk-cache-mode", "full")
    with serving(tmp_path, *options, within=(*IN_MOUNTS, ON_10_MB, str(disk))) as served:
        assert [reply.token_ids for reply in replies(served)] == expected
        served.wait_event("disk_cache_fault")
        assert served.events("disk_cache_fault")[0]["reason"] == "no_space"
        assert [reply.token_ids for reply in replies(served)] == expected
