import pytest
from click.testing import CliRunner

from lanehost.chaos.table import Fault, Phase
from lanehost.cli import main
from lanehost.cli_chaos import _chaos_run, chaos


def run(*args):
    return CliRunner().invoke(main, ["chaos", *args])


def test_the_table_is_printed_whole():
    result = run("--list")
    assert result.exit_code == 0
    for fault in Fault:
        assert f"{fault.value}\n" in result.stdout
    assert result.stdout.count("\n") == len(Fault) * (1 + len(Phase))
    assert "cannot be: no step runs" in result.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--faults", "kill,flood"), "'flood' is not one of kill, stop"),
        (("--duration", "0"), "--duration"),
        (("--tp", "3"), "--tp"),
        (("--unknown",), "--unknown"),
        (("--cells", "kill/never"), "'kill/never' is not FAULT/PHASE"),
    ],
)
def test_what_is_wrong_is_named_and_the_code_is_2(args, words):
    result = run(*args)
    assert result.exit_code == 2
    assert words in result.stderr


def test_cells_that_cannot_be_are_told_and_break_nothing():
    result = run("--cells", "nan/idle")
    assert result.exit_code == 0
    assert "cannot be: no step runs" in result.stdout
    assert "0 cells were tried, 0 broke a law" in result.stdout


def test_a_server_that_does_not_start_is_said_in_a_line_and_the_code_is_1():
    result = run("--model", "/absent")
    assert result.exit_code == 1
    assert "the server did not start" in result.stderr


def test_what_stands_behind_the_dashes_goes_to_serve_and_a_seed_is_chosen():
    context = chaos.make_context("chaos", ["--tp", "1", "--", "--lanes", "8"])
    made = _chaos_run(context.params)
    assert made.serve_args[-2:] == ("--lanes", "8")
    assert made.serve_args[:4] == ("--model", "embedded", "--tp", "1")
    assert (made.faults, made.tp) == ((Fault.KILL, Fault.STOP), 1)
    assert made.seed != _chaos_run(context.params).seed
