from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from lanehost.cli_bench_parts import (
    OUT_FILE,
    Counts,
    model_path,
    said_in_a_line,
    with_model,
)
from lanehost.embedded import embedded_model_path
from lanehost.errors import RankGroupLost, StartupFailed, StepFailed


def convert(kind, value):
    return kind.convert(value, None, None)


def test_counts_are_read_with_commas_between():
    assert convert(Counts(100), "1,4,16") == (1, 4, 16)
    assert convert(Counts(100), "8") == (8,)


@pytest.mark.parametrize("value", ["", "a", "1,,2", "0", "101", "-1", "1.5"])
def test_what_is_no_count_or_out_of_range_is_refused(value):
    with pytest.raises(click.BadParameter):
        convert(Counts(100), value)


def test_a_file_is_refused_at_once_when_its_folder_is_not_there(tmp_path):
    assert convert(OUT_FILE, str(tmp_path / "out.json")) == tmp_path / "out.json"
    with pytest.raises(click.BadParameter, match="there is no folder"):
        convert(OUT_FILE, str(tmp_path / "none" / "out.json"))


@click.command()
@with_model
def _shown(model, **_):
    click.echo(model_path(model))


@pytest.mark.model
def test_the_model_is_the_embedded_one_unless_it_is_named(tmp_path):
    def shown(*args):
        return CliRunner().invoke(_shown, args)

    assert shown().stdout.strip() == str(embedded_model_path())
    assert shown("--model", "embedded").stdout.strip() == str(embedded_model_path())
    assert shown("--model", str(tmp_path)).stdout.strip() == str(tmp_path)
    refused = shown("--model", "nothing.gguf")
    assert refused.exit_code == 2
    assert "nothing is downloaded" in refused.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StartupFailed("why"), 1),
        (StepFailed("why"), 1),
        (OSError("why"), 1),
        (RankGroupLost("why", epoch=1, rank=0), 4),
    ],
)
def test_what_fails_is_said_in_a_line_and_has_its_exit_code(error, code, capsys):
    with pytest.raises(SystemExit) as ended, said_in_a_line():
        raise error
    assert ended.value.code == code
    assert capsys.readouterr().err == "lanehost: why\n"


def test_ctrl_c_ends_with_130_and_says_nothing(capsys):
    with pytest.raises(SystemExit) as ended, said_in_a_line():
        raise KeyboardInterrupt
    assert ended.value.code == 130
    assert capsys.readouterr().err == ""


def test_a_path_is_its_own_model():
    assert model_path(Path("some.gguf")) == Path("some.gguf")
