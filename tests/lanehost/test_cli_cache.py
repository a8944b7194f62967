import asyncio
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from lanehost.cli import main
from lanehost.disk_cache.folder import own_folder
from lanehost.disk_cache.manifests import manifest_path, write_manifest
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
    assert f"{path}: its bytes have changed (checksum)\n" in result.stdout
    assert f"{torn}: torn: shorter than it says, or not whole\n" in result.stdout
    assert path.exists()
    assert torn.exists()


def test_what_cannot_be_read_is_said_beside_the_list(tmp_path):
    entry_in(tmp_path)
    manifest_path(tmp_path, entry_in(tmp_path, first=900).header.name).write_bytes(b"")
    result = run("ls", tmp_path)
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr == "lanehost: 1 manifest cannot be read; see `verify`\n"


def test_a_folder_where_a_file_should_be_is_foreign(tmp_path):
    path = file_of(tmp_path, entry_in(tmp_path))
    path.unlink()
    path.mkdir()
    torn = manifest_path(tmp_path, entry_in(tmp_path, first=900).header.name)
    torn.unlink()
    torn.mkdir()
    said = run("verify", tmp_path).stdout
    assert f"{path}: foreign: no regular file" in said
    assert f"{torn}: foreign: no regular file" in said


def test_a_file_that_is_missing_is_broken(tmp_path):
    path = file_of(tmp_path, entry_in(tmp_path))
    path.unlink()
    result = run("verify", tmp_path)
    assert result.exit_code == 1
    assert result.stdout == f"{path}: missing\n1 entries, 0 files, 1 broken\n"


def test_files_of_no_entry_are_counted(tmp_path):
    entry_in(tmp_path)
    manifest_path(tmp_path, entry_in(tmp_path, first=900).header.name).unlink()
    result = run("verify", tmp_path)
    assert result.exit_code == 0
    assert "1 files are of no entry" in result.stdout


def test_files_of_ranks_of_another_host_are_not_broken(tmp_path):
    manifest = entry_in(tmp_path)
    write_manifest(tmp_path, replace(manifest, rank_bytes=(100, 100)))
    path = file_of(tmp_path, manifest)
    path.rename(path.with_name(path.name.replace("r0of1", "r0of2")))
    result = run("verify", tmp_path)
    assert "1 files are not here" in result.stdout
    assert "missing" not in result.stdout


def test_a_flush_of_all_leaves_no_prompt_and_one_of_a_scope_what_is_of_nobody(tmp_path):
    manifest_path(tmp_path, entry_in(tmp_path).header.name).unlink()
    path = file_of(tmp_path, entry_in(tmp_path, first=900))
    half = path.with_name(f".{path.name.removesuffix('.safetensors')}.77.tmp")
    half.touch()
    (tmp_path / "aside").mkdir()
    (tmp_path / "aside" / "layout.0.manifest").touch()
    (tmp_path / "aside" / "layout.1.manifest").mkdir()
    assert run("flush", tmp_path, "--scope", "other").exit_code == 0
    assert len(list(tmp_path.glob("aside/*"))) == 2
    assert run("flush", tmp_path).exit_code == 0
    assert [one for one in tmp_path.rglob("*") if not one.is_dir()] == [tmp_path / "lock"]
    assert list(tmp_path.glob("aside/*")) == []


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
        pruned = await asyncio.to_thread(run, "prune", tmp_path, "--server", "--budget", "0")
        assert "left bytes        0" in pruned.stdout


@pytest.mark.parametrize("command", ["stat", "verify", "flush", "prune"])
def test_without_a_server_there_is_nobody_to_ask(tmp_path, command):
    args = ["--budget", "1"] if command == "prune" else []
    result = run(command, tmp_path, "--server", *args)
    assert result.exit_code == 1
    assert "no server answers for this folder: UNAVAILABLE" in result.stderr
