"""`lanehost certs`: an authority, and certificates for the hosts of a group."""

import sys
from pathlib import Path

import click

from lanehost.errors import StartupFailed

_EXIT_CANNOT = 1
_MAX_DAYS = 3650


@click.command(short_help="Make certificates for ranks on several hosts.")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    required=True,
    metavar="NAME",
    help="A host, by the name or address that others dial it by; give one for each.",
)
@click.option(
    "--days",
    type=click.IntRange(1, _MAX_DAYS),
    default=365,
    show_default=True,
    help="How long they are valid.",
)
def certs(folder: Path, hosts: tuple[str, ...], days: int) -> None:
    """Make an authority in DIR, and a folder DIR/NAME for each host.

    Copy each folder to its host, and give it as --rank-tls. The authority's key, ca-key.pem,
    stays where it is: with it DIR signs for more hosts later. Good for tests and for small
    clusters; where there is an authority already, let it make ca.pem, cert.pem and key.pem.

    \b
    Examples:
      lanehost certs tls --host 10.0.0.1 --host 10.0.0.2
    """  # noqa: D301 - click wants the character itself
    # Late, so that the other commands do not load it.
    from lanehost.rank_group.certificates import make_certificates  # noqa: PLC0415

    try:
        made = make_certificates(folder, hosts, days=days)
    except StartupFailed as error:
        click.echo(f"lanehost: {error}", err=True)
        sys.exit(_EXIT_CANNOT)
    for one in made:
        click.echo(str(one))
