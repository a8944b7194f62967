"""`lanehost chat`: a person speaks, the model answers, and both are remembered."""

import importlib
from contextlib import suppress
from typing import IO, Any

import click

from lanehost.cli_client import EPILOG, fail, read_chat, run_one, split, with_options
from lanehost.client import Client
from lanehost.client_codec import Message
from lanehost.client_errors import BadRequest, ClientError, TooLong

_PROMPT = "> "


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
    r"""Talk to the model; it remembers what was said.

    \b
    While you talk:
      /reset    forget what was said
      /exit     leave (Ctrl-D does so too)
      Ctrl-C    stop this reply, not the program

    \b
    Examples:
      lanehost chat --system "You are a pirate."
      lanehost chat --chat chat.json --json

    \b
    Exit codes: 0 done, 1 refused or failed, 2 wrong command line,
    3 nobody answers at the address, 130 stopped with Ctrl-C.
    """
    if chat_file is None and as_json:
        raise click.UsageError("--json needs --chat FILE.json")
    start: list[Message] = [] if system is None else [{"role": "system", "content": system}]
    if chat_file is not None:
        messages = [*start, *read_chat(chat_file)]
        run_one({"messages": messages}, options, as_json=as_json)
        return
    address, wanted = split(options)
    with Client(address) as client:
        try:
            name = client.model().name
            click.echo(f"{name} at {address}; /reset forgets, /exit leaves", err=True)
            converse(client, start, wanted)
        except ClientError as error:
            fail(error, address)


def converse(client: Client, start: list[Message], options: dict[str, Any]) -> None:
    """Talk until the person leaves; `start` is what every chat begins with.

    Raises:
        ClientError: the server failed; what it refuses for the chat alone is only said.
    """
    # It gives `input` its line editing, and is not on every system.
    with suppress(ImportError):
        importlib.import_module("readline")
    messages = list(start)
    while (line := _read_line()) is not None:
        match line.strip():
            case "/exit":
                return
            case "/reset":
                messages = list(start)
                click.echo("forgotten", err=True)
            case "":
                continue
            case _:
                messages = _answer(client, [*messages, _message("user", line)], options)


def _read_line() -> str | None:
    while True:
        try:
            return input(_PROMPT)
        except EOFError:
            click.echo("")
            return None
        except KeyboardInterrupt:
            click.echo("\n/exit leaves", err=True)


def _answer(client: Client, messages: list[Message], options: dict[str, Any]) -> list[Message]:
    """Print a reply and return the chat with it, or without its question when refused."""
    with client.stream(messages=messages, **options) as stream:
        try:
            for delta in stream:
                click.echo(delta.text, nl=False)
        except KeyboardInterrupt:
            # What was said so far was said.
            click.echo(" (stopped)", err=True, nl=False)
        except (BadRequest, TooLong) as error:
            click.echo(f"lanehost: {error.code.name}: {error.message}", err=True)
            return messages[:-1]
        finally:
            click.echo("")
        return [*messages, _message("assistant", stream.text)]


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}
