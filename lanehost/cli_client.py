"""`lanehost generate`, and what it shares with `lanehost chat`: gRPC clients.

Exit codes: 0 done, 1 the server refused the request or it failed, 2 wrong command
line, 3 nobody answers at the address, 130 stopped with Ctrl-C.
"""

import json
import sys
from collections.abc import Callable, Iterable
from typing import IO, Any, NoReturn

import click

from lanehost.client import DEFAULT_ADDRESS, Client, ReplyStream
from lanehost.client_codec import Message, Reply, encode_chat
from lanehost.client_errors import ClientError, Unreachable

_EXIT_FAILED = 1
_EXIT_UNREACHABLE = 3
_EXIT_INTERRUPTED = 130
_OPTIONS = [
    click.option(
        "--address",
        default=DEFAULT_ADDRESS,
        show_default=True,
        metavar="HOST:PORT",
        help="The server's gRPC address.",
    ),
    click.option("--max-tokens", type=int, help="Most tokens to generate."),
    click.option("--temperature", type=float, help="0 is greedy."),
    click.option("--top-p", type=float, help="Keep the likeliest tokens that reach this sum."),
    click.option("--top-k", type=int, help="Keep the k likeliest tokens."),
    click.option("--min-p", type=float, help="Keep tokens at least this likely, relatively."),
    click.option("--seed", type=int, help="The same seed gives the same reply."),
    click.option("--stop", multiple=True, help="End before this text; may be repeated."),
    click.option("--timeout", type=float, metavar="SECONDS", help="Give up after so long."),
]
EPILOG = "What is left out takes the server's default: greedy, unless it says otherwise."


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of every reply."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class _TokenIds(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """Token ids with commas between."""

    name = "IDS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int]:
        try:
            return [int(part) for part in value.split(",")]
        except ValueError:
            self.fail(f"{value!r} is not like 1,2,3", param, ctx)


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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
@with_options
def generate(
    prompt: str | None,
    token_ids: list[int] | None,
    chat_file: IO[str] | None,
    *,
    as_json: bool,
    **options: Any,
) -> None:
    r"""Generate one reply and print it as it comes.

    \b
    Examples:
      lanehost generate --prompt "The sky is" --max-tokens 16
      printf "The sky is" | lanehost generate --prompt - --json
      lanehost generate --chat chat.json --temperature 0.8 --seed 7 --stop END

    \b
    Exit codes: 0 done, 1 refused or failed, 2 wrong command line,
    3 nobody answers at the address, 130 stopped with Ctrl-C.
    """
    given = [one for one in (prompt, token_ids, chat_file) if one is not None]
    if len(given) != 1:
        raise click.UsageError("give exactly one of --prompt, --token-ids, --chat")
    prompts: dict[str, Any] = {
        "prompt": sys.stdin.read() if prompt == "-" else prompt,
        "token_ids": token_ids,
        "messages": None if chat_file is None else read_chat(chat_file),
    }
    run_one(prompts, options, as_json=as_json)


def run_one(prompts: dict[str, Any], options: dict[str, Any], *, as_json: bool) -> None:
    """Print one reply; ends the program where that fails."""
    address, wanted = split(options)
    with Client(address) as client:
        try:
            with client.stream(**prompts, **wanted) as stream:
                _print_reply(stream, as_json=as_json)
        except ClientError as error:
            fail(error, address)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        except KeyboardInterrupt:
            sys.exit(_EXIT_INTERRUPTED)


def _print_reply(stream: ReplyStream, *, as_json: bool) -> None:
    for delta in stream:
        if not as_json:
            click.echo(delta.text, nl=False)
    click.echo(json.dumps(_as_object(stream.reply), ensure_ascii=False) if as_json else "")


def _as_object(reply: Reply) -> dict[str, Any]:
    return {
        "text": reply.text,
        "token_ids": list(reply.token_ids),
        "finish_reason": reply.finish_reason.value,
        "usage": {
            "prompt_tokens": reply.usage.prompt_tokens,
            "cached_tokens": reply.usage.cached_tokens,
            "completion_tokens": reply.usage.completion_tokens,
        },
    }


def split(options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the address, and the options that were given."""
    wanted = {name: value for name, value in options.items() if value not in (None, ())}
    return wanted.pop("address"), wanted


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


def fail(error: ClientError, address: str) -> NoReturn:
    """Say in one line what failed, and end the program."""
    if isinstance(error, Unreachable):
        click.echo(
            f"lanehost: nobody answers at {address}; start a server with `lanehost serve`, "
            "or name another with --address",
            err=True,
        )
        sys.exit(_EXIT_UNREACHABLE)
    click.echo(f"lanehost: {error.code.name}: {error.message}", err=True)
    sys.exit(_EXIT_FAILED)
