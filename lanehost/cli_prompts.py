"""What `lanehost generate` and `lanehost chat` read from files: chats, and images."""

import json
from collections.abc import Iterable
from typing import IO, Any

import click

from lanehost.client_chat import Image, Message, encode_chat


class ImageFile(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """An image's file."""

    name = "FILE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Image:
        """Read it; what was read is taken as it is."""
        return value if isinstance(value, Image) else read_image(value, param, ctx)


def read_image(
    path: str, param: click.Parameter | None = None, ctx: click.Context | None = None
) -> Image:
    """Read an image's file.

    Raises:
        click.BadParameter: it cannot be read; says why.
    """
    try:
        return Image(path)
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}", ctx, param) from error


def read_chat(file: IO[str]) -> list[Message]:
    """Read the messages of a JSON file.

    Raises:
        click.UsageError: it holds none.
    """
    try:
        value = json.load(file)
    except ValueError as error:
        raise click.UsageError(f"--chat {file.name} is not JSON: {error}") from error
    messages = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(messages, list) or not all(_is_message(one) for one in messages):
        raise click.UsageError(
            f'--chat {file.name} holds no list of {{"role": TEXT, "content": TEXT}}'
        )
    _check_roles(messages, file.name)
    return messages


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"role", "content"}
        and all(isinstance(text, str) for text in value.values())
    )


def _check_roles(messages: Iterable[Message], name: str) -> None:
    try:
        encode_chat(messages)
    except ValueError as error:
        raise click.UsageError(f"--chat {name}: {error}") from error
