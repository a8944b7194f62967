import asyncio
import json

import pytest
from click.testing import CliRunner

from lanehost.cli import main
from lanehost.disk_cache.folder import own_folder
from lanehost.disk_cache.manifests import manifest_path
from tests.support.admin_rig import answering
from tests.support.disk_folders import entry_in, file_of


def run(*args):
    return CliRunner().invoke(main, ["cache", *map(str, args)])


def test_entries_are_listed_most_used_first_and_without_their_tokens(tmp_path):
    rare, often = entry_in(tmp_path), entry_in(tmp_path, first=900, hits=7)
    lines = run("ls", tmp_path).stdout.splitlines()
    assert lines[0].split() == ["ENTRY", "LAYOUT", "TOKENS", "MIB", "USES", "WRITTEN"]
    assert [line.split()[0] for line in lines[1:]] == [
        often.header.key[:12],
        rare.header.key[:12],
    ]
    told = [json.loads(line) for line in run("ls", tmp_path, "--json").stdout.splitlines()]
    assert [one["uses"] for one in told] == [7, 0]
    assert "token_ids" not in told[0]


def test_a_folder_is_summed_up(tmp_path):
    entry_in(tmp_path, hits=2)
    entry_in(tmp_path, first=900)
    (tmp_path / "layout").mkdir()
    (tmp_path / "layout" / "0.manifest").touch()
    told = json.loads(run("stat", tmp_path, "--json").stdout)
    assert told == {
        "entries": 2,
        "layouts": 1,
        "tokens": 96,
        "bytes": 200,
        "uses": 2,
        "broken_manifests": 1,
        "aside": 0,
    }
    assert "broken manifests  1" in run("stat", tmp_path).stdout


def test_what_is_whole_is_verified(tmp_path):
    entry_in(tmp_path)
    result = run("verify", tmp_path)
    assert (result.exit_code, result.stdout) == (0, "1 entries, 1 files, 0 broken\n")


def test_what_is_not_whole_is_named_and_left_there(tmp_path):
    path = file_of(tmp_path, entry_in(tmp_path))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    torn = manifest_path(tmp_path, entry_in(tmp_path, first=900).header.name)
    torn.write_bytes(b"")
    result = run("verify", tmp_path)
    assert result.exit_code == 1
    assert f"{path}: checksum\n" in result.stdout
    assert f"{torn}: torn\n" in result.stdout
    assert path.exists()
    assert torn.exists()


def test_a_prune_leaves_what_is_worth_most_within_the_budget(tmp_path):
    rare, often = entry_in(tmp_path), entry_in(tmp_path, first=900, hits=7)
    result = run("prune", tmp_path, "--budget", "150")
    assert result.stdout.endswith("removed 1 entries, 100 bytes; 1 left\n")
    assert not file_of(tmp_path, rare).exists()
    assert file_of(tmp_path, often).exists()


@pytest.mark.parametrize(("args", "num_left"), [([], 0), (["--scope", "t"], 1)])
def test_a_flush_removes_all_or_one_scope(tmp_path, args, num_left):
    entry_in(tmp_path)
    entry_in(tmp_path, scope="t")
    assert run("flush", tmp_path, *args).exit_code == 0
    assert len(list(tmp_path.glob("*/*.manifest"))) == num_left
    assert len(list(tmp_path.glob("*/*.safetensors"))) == num_left


@pytest.mark.parametrize("args", [["flush"], ["prune", "--budget", "0"]])
def test_nothing_is_removed_under_a_server(tmp_path, args):
    entry_in(tmp_path)
    with own_folder(tmp_path):
        result = run(args[0], tmp_path, *args[1:])
        listed = run("ls", tmp_path)
    assert (result.exit_code, listed.exit_code) == (1, 0)
    assert "another server uses" in result.stderr
    assert len(list(tmp_path.glob("*/*.manifest"))) == 1


def test_a_folder_that_is_not_there_is_named(tmp_path):
    result = run("ls", tmp_path / "none")
    assert result.exit_code == 2
    assert "does not exist" in result.stderr


async def test_a_server_is_asked_for_its_figures_and_to_verify_and_flush(tmp_path):
    async with answering(tmp_path, scopes=("a", "b")):
        told = await asyncio.to_thread(run, "stat", tmp_path, "--server", "--json")
        assert json.loads(told.stdout)["disk_entries"] == 2
        verified = await asyncio.to_thread(run, "verify", tmp_path, "--server")
        assert (verified.exit_code, verified.stdout.split()[:2]) == (0, ["whole", "2"])
        flushed = await asyncio.to_thread(run, "flush", tmp_path, "--server", "--scope", "a")
        assert "disk entries      1" in flushed.stdout


@pytest.mark.parametrize("command", ["stat", "verify", "flush"])
def test_without_a_server_there_is_nobody_to_ask(tmp_path, command):
    result = run(command, tmp_path, "--server")
    assert result.exit_code == 1
    assert "no server answers for this folder: UNAVAILABLE" in result.stderr
