"""`lanehost bench cache`: its options, and what its servers are given."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from lanehost.cli import main
from lanehost.cli_bench_cache import serve_options

OPTIONS = {"tp": 2, "dtype": "int8", "weights": "auto", "device": "cpu", "threads": 1}


def test_its_servers_get_the_model_and_free_ports():
    given = serve_options(Path("m.gguf"), OPTIONS)
    assert given[:2] == ("--model", "m.gguf")
    pairs = dict(zip(given[::2], given[1::2], strict=True))
    assert pairs["--tp"] == "2"
    assert (pairs["--port"], pairs["--http-port"]) == ("0", "off")
    assert (pairs["--dtype"], pairs["--threads"]) == ("int8", "1")
    assert "--threads" not in serve_options(Path("m.gguf"), {**OPTIONS, "threads": None})


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--tokens", "0"), "--tokens"),
        (("--rounds", "0"), "--rounds"),
        (("--tp", "99"), "--tp"),
        (("--folder", "/nowhere/at/all"), "--folder"),
        (("--model", "/nowhere/at/all"), "nothing is downloaded"),
    ],
)
def test_a_wrong_command_line_is_refused_by_name(args, message):
    result = CliRunner().invoke(main, ["bench", "cache", *args])
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_server_that_cannot_start_is_said_in_a_line(tmp_path):
    model = tmp_path / "m.gguf"
    model.write_bytes(b"no model")
    args = ["--model", str(model), "--rounds", "1", "--folder", str(tmp_path)]
    result = CliRunner().invoke(main, ["bench", "cache", *args])
    assert result.exit_code == 1
    assert "the server did not start" in result.stderr
    assert list(tmp_path.iterdir()) == [model]
