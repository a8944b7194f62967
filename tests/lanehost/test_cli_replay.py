import asyncio
import subprocess
import sys
from dataclasses import replace

import click
import pytest
from click.testing import CliRunner

from lanehost.cli import main
from lanehost.cli_replay import replay
from lanehost.recorder.records import Closed, Cut, StepReturned
from tests.support.trails import first_file, rewrite, run_recorded


def record(folder, **how):
    asyncio.run(run_recorded(folder, **how))


def run(*args):
    return CliRunner().invoke(main, ["replay", *map(str, args)])


def test_an_equal_trail_exits_0_and_says_how_much_was_compared(tmp_path):
    record(tmp_path, keeps_prompts=False)
    result = run(tmp_path, "--against", "fake")
    assert result.exit_code == 0
    assert result.stdout.startswith("EQUAL: ")
    assert " steps, " in result.stdout


def test_a_trail_that_differs_exits_1_and_names_the_step(tmp_path):
    record(tmp_path)

    def change(record):
        if isinstance(record, StepReturned) and record.step_id == 5:
            return replace(record, digest=bytes(16))
        return record

    rewrite(tmp_path, change)
    result = run(tmp_path, "--against", "fake")
    assert result.exit_code == 1
    assert result.stdout.startswith("DIFFERS after 4 equal steps. step 5: the digest")


def test_a_torn_trail_is_replayed_as_far_as_it_goes_and_says_so(tmp_path):
    record(tmp_path)
    path = first_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-5])
    result = run(path, "--against", "fake")
    assert result.exit_code == 0
    assert "bytes are no whole record: torn off" in result.stdout
    assert "the trail stops in mid-run" in result.stdout


def test_a_cut_trail_says_why_it_was_cut(tmp_path):
    record(tmp_path)
    rewrite(
        tmp_path, lambda one: Cut(at_ns=1, reason="disk full") if isinstance(one, Closed) else one
    )
    result = run(tmp_path, "--against", "fake")
    assert "recording stopped before the run ended: disk full" in result.stdout


@pytest.mark.parametrize("content", [b"", b"something else entirely", b"lanehost-trail\x09\x00"])
def test_what_cannot_be_read_exits_2_with_one_line(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    result = run(path, "--against", "fake")
    assert result.exit_code == 2
    assert result.stderr.startswith("lanehost: cannot replay: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_trail_without_prompts_cannot_run_on_ranks_and_exits_2(tmp_path):
    record(tmp_path, keeps_prompts=False)
    result = run(tmp_path)
    assert result.exit_code == 2
    assert "--record-prompts" in result.stderr


def test_a_request_that_is_not_there_is_said_before_any_rank_starts(tmp_path):
    record(tmp_path)
    result = run(tmp_path, "--request", "nobody")
    assert result.exit_code == 2
    assert "no request nobody, the trail has 12" in result.stderr


@pytest.mark.parametrize("option", ["--request", "--model", "--tp"])
def test_options_for_ranks_are_refused_without_them(option):
    result = run("trail", "--against", "fake", option, "1")
    assert result.exit_code == 2
    assert f"{option} needs --against ranks" in result.stderr


def test_every_option_has_help():
    assert all(option.help for option in replay.params if isinstance(option, click.Option))


def test_the_client_commands_do_not_load_what_only_a_replay_needs():
    code = "import sys, lanehost.cli; sys.exit('lanehost.recorder' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0
