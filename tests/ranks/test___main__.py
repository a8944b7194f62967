"""`python -m ranks`: argv to settings, and nothing heavy before the guard stands."""

import json
import os
import subprocess
import sys

import pytest
import structlog

from ranks.__main__ import build_version, log_to_stderr, parse_settings
from ranks.guard import EXIT_MASTER_GONE
from ranks.spare import Orders, encode_orders

ARGV = ["--master", "127.0.0.1:1", "--rank", "0", "--world-size", "1", "--death-fd", "3"]


def test_arguments_become_settings():
    settings = parse_settings(ARGV, token="t")
    assert (settings.master, settings.rank, settings.world_size) == ("127.0.0.1:1", 0, 1)


def test_a_wrong_argument_ends_with_its_name_and_limit(capsys):
    with pytest.raises(SystemExit):
        parse_settings([*ARGV[:3], "7", *ARGV[4:]], token="t")
    assert "--rank is 7, allowed is 0 to 0" in capsys.readouterr().err


def test_the_guard_stands_before_torch_and_grpc_load():
    code = "import sys, ranks.__main__; print(sorted({'torch', 'grpc'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_build_is_the_version_of_the_package():
    assert build_version()[0].isdigit()


@pytest.mark.parametrize("is_json", [True, False])
def test_a_line_of_the_log_carries_the_rank_in_the_form_of_the_masters_log(capsys, is_json):
    settings = parse_settings([*ARGV, *(["--log-json"] if is_json else [])], token="t")
    log_to_stderr(settings.rank, is_json=settings.log_json)
    try:
        structlog.get_logger().info("model_loaded")
    finally:
        structlog.reset_defaults()
    line = capsys.readouterr().err
    if is_json:
        assert (json.loads(line)["event"], json.loads(line)["rank"]) == ("model_loaded", 0)
    else:
        assert "event='model_loaded' rank=0" in line


def spare():
    """A spare and the write end of its death pipe."""
    read_end, write_end = os.pipe()
    command = (sys.executable, "-m", "ranks", "--spare", "--death-fd", str(read_end))
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(read_end,), text=True
    )
    os.close(read_end)
    return process, write_end


@pytest.mark.timeout(120)
def test_a_spare_that_nobody_needs_ends_in_order():
    process, death_pipe = spare()
    with process:
        _, said = process.communicate("")
    os.close(death_pipe)
    assert (process.returncode, said) == (0, "")


@pytest.mark.timeout(120)
def test_a_spare_does_not_outlive_its_master():
    process, death_pipe = spare()
    with process:
        os.close(death_pipe)
        assert process.wait(timeout=60) == EXIT_MASTER_GONE


@pytest.mark.timeout(120)
def test_a_spare_becomes_the_rank_that_it_is_told_to_be():
    process, death_pipe = spare()
    argv = ("--master", "127.0.0.1:1", "--rank", "7", "--world-size", "2")
    with process:
        _, said = process.communicate(encode_orders(Orders(argv=argv, token="t")).decode())
    os.close(death_pipe)
    assert process.returncode == 2
    assert "--rank is 7, allowed is 0 to 1" in said
