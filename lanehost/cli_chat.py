"""`lanehost chat`: a person speaks, the model answers, and both are remembered."""

import importlib
import re
from contextlib import suppress
from typing import IO, Any

import click

from lanehost.cli_client import (
    EPILOG,
    Wanted,
    describe,
    fail,
    run_one,
    split,
    when_loaded,
    with_options,
)
from lanehost.cli_prompts import read_chat, read_image
from lanehost.client import Client
from lanehost.client_chat import Image, Message
from lanehost.client_errors import (
    BadRequest,
    ClientError,
    DeadlineExceeded,
    ServerBusy,
    TooLong,
)
from lanehost.client_stream import ReplyStream

_PROMPT = "> "
_COMMAND = re.compile(r"/\w+")
_SHOW = re.compile(r"/image\s+(\S.*)")
# They are of one question alone: the chat goes on without it.
_OF_ONE_QUESTION = (BadRequest, TooLong, ServerBusy, DeadlineExceeded)


@click.command(epilog=EPILOG)
@click.option(
    "--chat",
    "chat_file",
    type=click.File(encoding="utf-8"),
    metavar="FILE.json",
    help="Answer this chat once and end; a file as in `generate --chat`.",
)
@click.option("--system", help="Instructions for the whole chat.")
@click.option("--json", "as_json", is_flag=True, help="With --chat: print one JSON object.")
@with_options
def chat(chat_file: IO[str] | None, system: str | None, *, as_json: bool, **options: Any) -> None:
    """Talk to the model; it remembers what was said.

    \b
    While you talk:
      /image FILE   show an image with what you say next
      /reset    forget what was said
      /exit     leave (Ctrl-D does so too)
      Ctrl-C    stop this reply, not the program

    \b
    Examples:
      lanehost chat --system "You are a pirate."
      lanehost chat --chat chat.json --json

    \b
    Exit codes: 0 done, 1 refused or failed, 2 wrong command line,
    3 nobody answers at the address, 4 the server ended during the reply,
    130 stopped with Ctrl-C.
    """  # noqa: D301 - click wants the character itself
    if chat_file is None and as_json:
        raise click.UsageError("--json needs --chat FILE.json")
    start: list[Message] = [] if system is None else [{"role": "system", "content": system}]
    if chat_file is not None:
        messages = [*start, *read_chat(chat_file)]
        run_one({"messages": messages}, options, as_json=as_json)
        return
    wanted = split(options)
    with wanted.client() as client:
        try:
            name = when_loaded(client, wanted, Client.model).name
            click.echo(f"{name} at {wanted.address}; /reset forgets, /exit leaves", err=True)
            converse(client, start, wanted)
        except ClientError as error:
            fail(error, wanted)


def converse(client: Client, start: list[Message], wanted: Wanted) -> None:
    """Talk until the person leaves; `start` is what every chat begins with.

    Raises:
        ClientError: the server failed; what it refuses for the chat alone is only said.
    """
    # It gives `input` its line editing, and is not on every system.
    with suppress(ImportError):
        importlib.import_module("readline")
    messages = list(start)
    images: list[Image] = []
    while (line := _read_line()) is not None:
        match line.strip():
            case word if shown := _SHOW.fullmatch(word):
                _show(shown[1], images)
            case "/exit":
                return
            case "/reset":
                messages, images = list(start), []
                click.echo("forgotten", err=True)
            case "":
                continue
            case word if _COMMAND.fullmatch(word):
                click.echo("unknown command; /image FILE, /reset, /exit", err=True)
            case _:
                asked: Message = {"role": "user", "content": [*images, line] if images else line}
                messages, images = _answer(client, [*messages, asked], wanted), []


def _show(path: str, images: list[Image]) -> None:
    """Keep an image for the next question, or say why not."""
    try:
        images.append(read_image(path))
    except click.BadParameter as error:
        click.echo(f"lanehost: {error.message}", err=True)
        return
    click.echo(f"{len(images)} to show with what you say next", err=True)


def _read_line() -> str | None:
    while True:
        try:
            return input(_PROMPT)
        except EOFError:
            click.echo("")
            return None
        except KeyboardInterrupt:
            click.echo("\n/exit leaves", err=True)


def _answer(client: Client, messages: list[Message], wanted: Wanted) -> list[Message]:
    """Print a reply and return the chat with it, or without its question when it failed."""
    with client.stream(messages=messages, **wanted.options) as stream:
        try:
            for delta in stream:
                click.echo(delta.text, nl=False)
        except KeyboardInterrupt:
            # What was said so far was said.
            click.echo(" (stopped)", err=True, nl=False)
        except _OF_ONE_QUESTION as error:
            _end_line(stream)
            again = "; try again" if isinstance(error, ServerBusy) else ""
            click.echo(f"lanehost: {describe(error, wanted)}{again}", err=True)
            return messages[:-1]
        except ClientError:
            _end_line(stream)
            raise
        else:
            _say_how_it_ended(stream)
        click.echo("")
        return [*messages, _message("assistant", stream.text)]


def _end_line(stream: ReplyStream) -> None:
    if stream.text:
        click.echo("")


def _say_how_it_ended(stream: ReplyStream) -> None:
    if not stream.text:
        click.secho("(empty reply)", err=True, dim=True, nl=False)
    elif stream.reply.finish_reason == "length":
        count = stream.reply.usage.completion_tokens
        click.secho(f" (cut at max_tokens {count})", err=True, dim=True, nl=False)


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}
