"""`lanehost new-key`: a fresh key, and what the server's file needs of it."""

import secrets
from typing import Any

import click

from lanehost.keys_file import MAX_WEIGHT, is_scope_name, scope_table

_KEY_BYTES = 32


class _ScopeName(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """The name of a scope."""

    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_scope_name(value):
            self.fail(f"{value!r}: give 1 to 64 letters, digits, - and _", param, ctx)
        return str(value)


@click.command("new-key", short_help="Make a key for `serve --keys`.")
@click.argument("name", type=_ScopeName())
@click.option(
    "--weight",
    type=click.IntRange(1, MAX_WEIGHT),
    default=1,
    show_default=True,
    metavar="INTEGER",
    help=f"The scope's share of a busy server, against other scopes; 1 to {MAX_WEIGHT}.",
)
def new_key(name: str, weight: int) -> None:
    """Make a key for the scope NAME, and the table for the file of `serve --keys`.

    NAME is 1 to 64 letters, digits, - and _. The table goes to standard output. The key goes
    to standard error, once: it is stored nowhere, and whoever gets it asks as NAME.

    \b
    Examples:
      lanehost new-key team-a >> keys.toml
      lanehost new-key team-b --weight 3 >> keys.toml
      lanehost serve --keys keys.toml

    A scope has one table. For another key of the same NAME, run this again without the file
    and copy the digest that it shows into the scope's list, `key_digests`.
    """  # noqa: D301 - click wants the character itself
    key = secrets.token_urlsafe(_KEY_BYTES)
    click.echo(f"the key of {name}, shown this once: {key}", err=True)
    click.echo(f"\n{scope_table(name, key, weight)}", nl=False)
