"""What `serve` and `launch` are told of trails."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from lanehost.settings import RecordSettings

# Any: what click.option gives takes a function or a command, and gives it back.
RECORD_OPTIONS: tuple[Any, ...] = (
    click.option(
        "--record",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Write a trail of the run there, for `lanehost replay`; replies are in it.",
    ),
    click.option(
        "--record-prompts", is_flag=True, help="With --record: the prompts' token ids as well."
    ),
    click.option(
        "--record-images",
        type=click.Choice(["digests", "bytes"]),
        default="digests",
        show_default=True,
        help="With --record-prompts: what is written of images; without their bytes a trail "
        "with images cannot be run again on ranks.",
    ),
)


def build_record(options: Mapping[str, Any]) -> RecordSettings | None:
    """Turn the options into settings; None where nothing is recorded.

    Raises:
        click.UsageError: one option needs another.
    """
    folder, keeps_prompts = options["record"], options["record_prompts"]
    keeps_images = options["record_images"] == "bytes"
    if folder is None and keeps_prompts:
        raise click.UsageError("--record-prompts needs --record DIR")
    if keeps_images and not keeps_prompts:
        raise click.UsageError("--record-images bytes needs --record DIR --record-prompts")
    if folder is None:
        return None
    return RecordSettings(folder=folder, keeps_prompts=keeps_prompts, keeps_images=keeps_images)
