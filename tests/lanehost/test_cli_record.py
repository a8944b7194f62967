from pathlib import Path

import click
import pytest

from lanehost.cli import main
from lanehost.cli_record import build_record
from lanehost.settings import RecordSettings


def options_of(*args):
    return main.commands["serve"].make_context("serve", ["--model", "/", *args]).params


def test_without_a_folder_nothing_is_recorded():
    assert build_record(options_of()) is None


def test_images_are_digests_unless_their_bytes_are_asked_for():
    assert build_record(options_of("--record", "a")) == RecordSettings(folder=Path("a"))
    asked = ("--record", "a", "--record-prompts", "--record-images", "bytes")
    assert build_record(options_of(*asked)) == RecordSettings(
        folder=Path("a"), keeps_prompts=True, keeps_images=True
    )


@pytest.mark.parametrize(
    "args",
    [
        ("--record-prompts",),
        ("--record-images", "bytes"),
        ("--record", "a", "--record-images", "bytes"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(args):
    with pytest.raises(click.UsageError, match="needs --record DIR"):
        build_record(options_of(*args))
