"""`lanehost generate`, and what it shares with `lanehost chat`: gRPC clients.

Exit codes: 0 done, 1 the server refused the request or it failed, 2 wrong command
line, 3 nobody answers at the address, 4 the server ended during the reply, 130 stopped
with Ctrl-C.

A key is read from the file of --key-file, else from the variable LANEHOST_KEY. There is no
option for the key itself: the arguments of a program are there for all to see.
"""

import json
import os
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, NoReturn, TypeVar

import click

from lanehost.addresses import parse_address
from lanehost.cli_prompts import ImageFile, read_chat
from lanehost.client import DEFAULT_ADDRESS, Client
from lanehost.client_chat import Image
from lanehost.client_codec import Reply
from lanehost.client_errors import (
    ClientError,
    ConnectionLost,
    DeadlineExceeded,
    KeyRefused,
    ServerLoading,
    ServerUnavailable,
    Unreachable,
)
from lanehost.client_stream import ReplyStream
from lanehost.door.model_card import DEFAULT_MAX_TOKENS
from lanehost.job import DiskUse, Priority

_EXIT_FAILED = 1
_EXIT_UNREACHABLE = 3
_EXIT_LOST = 4
_EXIT_INTERRUPTED = 130
_PROBE_TIMEOUT_S = 1.0
KEY_VARIABLE = "LANEHOST_KEY"
_MAX_UINT32 = (1 << 32) - 1

_Result = TypeVar("_Result")


class _Address(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """HOST:PORT."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            parse_address(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


def _refuse_model(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.BadParameter(
            "the server has one model, and `lanehost serve --model` chooses it", ctx, param
        )


_WHOM = [
    click.option(
        "--address",
        type=_Address(),
        default=DEFAULT_ADDRESS,
        show_default=True,
        help="The server's gRPC address.",
    ),
    click.option(
        "--key-file",
        type=click.File(encoding="utf-8", errors="replace"),
        metavar="FILE",
        help=f"A file with the key that the server wants; default: the variable {KEY_VARIABLE}.",
    ),
]
_WAIT = click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Wait so long for a server that still loads its model.",
)
_OPTIONS = [
    *_WHOM,
    click.option(
        "--max-tokens",
        type=click.IntRange(0, _MAX_UINT32),
        metavar="INTEGER",
        help=f"Most tokens to generate; left out, the server takes {DEFAULT_MAX_TOKENS}. "
        "0 only warms the prompt cache.",
    ),
    click.option("--temperature", type=float, help="0 is greedy."),
    click.option("--top-p", type=float, help="Keep the likeliest tokens that reach this sum."),
    click.option(
        "--top-k",
        type=click.IntRange(1, _MAX_UINT32),
        metavar="INTEGER",
        help="Keep the k likeliest tokens.",
    ),
    click.option("--min-p", type=float, help="Keep tokens at least this likely, relatively."),
    click.option(
        "--seed",
        type=click.IntRange(0, (1 << 64) - 1),
        metavar="INTEGER",
        help="The same seed gives the same reply.",
    ),
    click.option("--stop", multiple=True, help="End before this text; may be repeated."),
    click.option("--timeout", type=float, metavar="SECONDS", help="Give up after so long."),
    _WAIT,
    click.option("--model", hidden=True, expose_value=False, callback=_refuse_model),
]
EPILOG = "What is left out takes the server's default: greedy, unless it says otherwise."


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the options of every reply ask for; `options` are those of the Python client."""

    address: str
    wait_s: float
    options: dict[str, Any]
    key: str | None = field(default=None, repr=False)

    def client(self) -> Client:
        """Make the client that asks.

        Raises:
            click.UsageError: the key can be none.
        """
        try:
            return Client(self.address, key=self.key)
        except ValueError as error:
            raise click.UsageError(f"{error} (--key-file, {KEY_VARIABLE})") from error


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of every reply."""
    return _with(_OPTIONS, command)


def with_server(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say whom to ask, and no more."""
    return _with([*_WHOM, _WAIT], command)


def _with(
    options: Iterable[Callable[..., Any]], command: Callable[..., None]
) -> Callable[..., None]:
    for option in reversed(list(options)):
        command = option(command)
    return command


class _TokenIds(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """Token ids with commas between."""

    name = "IDS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int]:
        try:
            token_ids = [int(part) for part in value.split(",")]
        except ValueError:
            self.fail(f"{value!r} is not like 1,2,3", param, ctx)
        for token_id in token_ids:
            if not 0 <= token_id <= _MAX_UINT32:
                self.fail(f"id {token_id}, allowed is 0 to {_MAX_UINT32}", param, ctx)
        return token_ids


@click.command(epilog=EPILOG)
@click.option("--prompt", metavar="TEXT|-", help="Text to continue; - reads standard input.")
@click.option("--token-ids", type=_TokenIds(), help='Token ids to continue, like "1,2,3".')
@click.option(
    "--chat",
    "chat_file",
    type=click.File(encoding="utf-8"),
    metavar="FILE.json",
    help='A chat: a list of {"role", "content"}, or {"messages": [...]}; - reads standard input.',
)
@click.option(
    "--image",
    "images",
    multiple=True,
    type=ImageFile(),
    help="With --prompt, which is then the question of a chat: an image that it is about; "
    "may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
@click.option(
    "--background",
    "priority",
    flag_value=Priority.BACKGROUND.value,
    help="Wait while requests of the foreground wait.",
)
@click.option(
    "--disk-cache",
    type=click.Choice([use.value for use in DiskUse if use is not DiskUse.DEFAULT]),
    help="What a prompt cache on disk does for it: nothing, give only, or also save all of it.",
)
@with_options
def generate(
    prompt: str | None,
    token_ids: list[int] | None,
    chat_file: IO[str] | None,
    *,
    images: tuple[Image, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Generate one reply and print it as it comes.

    \b
    Examples:
      lanehost generate --prompt "The sky is" --max-tokens 16
      printf "The sky is" | lanehost generate --prompt - --json
      lanehost generate --chat chat.json --temperature 0.8 --seed 7 --stop END
      lanehost generate --image cat.jpg --prompt "What is this?"

    \b
    Exit codes: 0 done, 1 refused or failed, 2 wrong command line,
    3 nobody answers at the address, 4 the server ended during the reply,
    130 stopped with Ctrl-C.
    """  # noqa: D301 - click wants the character itself
    given = [one for one in (prompt, token_ids, chat_file) if one is not None]
    if len(given) != 1:
        raise click.UsageError("give exactly one of --prompt, --token-ids, --chat")
    text = sys.stdin.read() if prompt == "-" else prompt
    if images and text is None:
        raise click.UsageError("--image needs --prompt TEXT")
    prompts: dict[str, Any] = {
        "prompt": None if images else text,
        "token_ids": token_ids,
        "messages": None if chat_file is None else read_chat(chat_file),
    }
    if images:
        prompts["messages"] = [{"role": "user", "content": [*images, text]}]
    run_one(prompts, options, as_json=as_json)


def run_one(prompts: dict[str, Any], options: dict[str, Any], *, as_json: bool) -> None:
    """Print one reply; ends the program where that fails."""
    wanted = split(options)

    def generate_one(client: Client) -> None:
        with client.stream(**prompts, **wanted.options) as stream:
            _print_reply(stream, as_json=as_json)

    with wanted.client() as client:
        try:
            when_loaded(client, wanted, generate_one)
        except ClientError as error:
            fail(error, wanted)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        except KeyboardInterrupt:
            sys.exit(_EXIT_INTERRUPTED)


def when_loaded(client: Client, wanted: Wanted, work: Callable[[Client], _Result]) -> _Result:
    """Do the work; if the server still loads its model, wait for that and do it then.

    Raises:
        ClientError: the work failed, or the server still loads.
    """
    with suppress(ServerLoading):
        return work(client)
    if wanted.wait_s > 0:
        click.echo("waiting for the model to load", err=True)
        with suppress(DeadlineExceeded):
            client.wait_until_serving(wanted.wait_s)
    return work(client)


def _print_reply(stream: ReplyStream, *, as_json: bool) -> None:
    try:
        for delta in stream:
            if not as_json:
                click.echo(delta.text, nl=False)
    except BaseException:
        # What is said of it next, or the shell's prompt, begins on a line of its own.
        if not as_json and stream.text and not stream.text.endswith("\n"):
            click.echo("")
        raise
    click.echo(json.dumps(_as_object(stream.reply), ensure_ascii=False) if as_json else "")


def _as_object(reply: Reply) -> dict[str, Any]:
    return {
        "text": reply.text,
        "token_ids": list(reply.token_ids),
        "finish_reason": reply.finish_reason,
        "usage": {
            "prompt_tokens": reply.usage.prompt_tokens,
            "cached_tokens": reply.usage.cached_tokens,
            "disk_cached_tokens": reply.usage.disk_cached_tokens,
            "image_tokens": reply.usage.image_tokens,
            "completion_tokens": reply.usage.completion_tokens,
        },
        "seed": reply.seed,
        "request_id": reply.request_id,
    }


def split(options: dict[str, Any]) -> Wanted:
    """Sort the options: whom to ask, how long to wait, and what was given for the reply."""
    given = {name: value for name, value in options.items() if value not in (None, ())}
    return Wanted(
        address=given.pop("address"),
        wait_s=given.pop("wait"),
        key=_read_key(given.pop("key_file", None)),
        options=given,
    )


def _read_key(file: IO[str] | None) -> str | None:
    """Return the key of the file, else of the environment; an empty variable is none."""
    if file is not None:
        return file.read().strip()
    return os.environ.get(KEY_VARIABLE) or None


def describe(error: ClientError, wanted: Wanted) -> str:
    """Say in one line what failed, and which option has to do with it."""
    match error:
        case Unreachable() if _is_open(wanted.address):
            return (
                f"{wanted.address} is open, but no gRPC server answers there: is it the HTTP "
                "port? The line that `lanehost serve` prints names both"
            )
        case Unreachable():
            return (
                f"nobody answers at {wanted.address}; start a server with `lanehost serve`, "
                "or name another with --address"
            )
        case ConnectionLost():
            return error.message
        case DeadlineExceeded() if "timeout" in wanted.options:
            hint = f" (--timeout {wanted.options['timeout']:g})"
        case KeyRefused():
            hint = f" (--key-file, {KEY_VARIABLE})"
        case ServerLoading():
            hint = f" (--wait {wanted.wait_s:g})"
        case _:
            hint = ""
    return f"{error.code.name}: {error.message}{hint}"


def fail(error: ClientError, wanted: Wanted) -> NoReturn:
    """Say in one line what failed, and end the program."""
    click.echo(f"lanehost: {describe(error, wanted)}", err=True)
    sys.exit(_exit_code(error))


def _exit_code(error: ClientError) -> int:
    match error:
        case Unreachable():
            return _EXIT_UNREACHABLE
        case ConnectionLost() | ServerUnavailable(has_begun=True):
            return _EXIT_LOST
        case _:
            return _EXIT_FAILED


def _is_open(address: str) -> bool:
    try:
        socket.create_connection(parse_address(address), _PROBE_TIMEOUT_S).close()
    except OSError:
        return False
    return True
