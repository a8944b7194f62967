"""`python -m ranks`: argv to settings, and nothing heavy before the guard stands."""

import subprocess
import sys

import pytest

from ranks.__main__ import build_version, parse_settings

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
