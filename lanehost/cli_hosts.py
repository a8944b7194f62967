"""What `serve`, `follow` and `launch` are told of a group over several hosts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from lanehost.addresses import parse_address
from lanehost.settings import RankPortSettings


class HostPort(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """HOST:PORT; port 0 takes a free one."""

    name = "HOST:PORT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Read it; a pair has been read already."""
        if isinstance(value, tuple):
            return value
        text = str(value)
        is_free = text.endswith(":0")
        try:
            host, port = parse_address(f"{text}1" if is_free else text)
        except ValueError:
            self.fail(f"{value!r} should be HOST:PORT, like 10.0.0.1:50050", param, ctx)
        return host, 0 if is_free else port


# Any: what click.option gives takes a function or a command, and gives it back.
SPARE_OPTION: Any = click.option(
    "--spare-rank",
    type=click.Choice(["on", "off"]),
    default="on",
    show_default=True,
    help="Keep a process at hand, with its code loaded, that takes the place of a lost rank.",
)
HOSTS_OPTIONS: tuple[Any, ...] = (
    click.option(
        "--rank",
        type=int,
        help="With --master: this host's rank; `serve` is 0, `follow` any other.",
    ),
    click.option(
        "--master",
        type=HostPort(),
        metavar="HOST:PORT",
        help="For ranks on several hosts: the address of rank 0's host that the others dial.",
    ),
    click.option(
        "--rank-tls",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="This host's certificates for the rank port; see `lanehost certs`.",
    ),
    click.option(
        "--insecure-rank-port",
        is_flag=True,
        help="Let in whoever reaches the rank port, beyond loopback and without certificates.",
    ),
    click.option(
        "--rank-interface",
        metavar="NAME",
        help="Network interface of gloo and NCCL between hosts; default: that of --master.",
    ),
)


def build_rank_port(options: Mapping[str, Any], *, ranks_here: int | None) -> RankPortSettings:
    """Turn the options into settings, which check themselves.

    Raises:
        StartupFailed: They cannot work.
    """
    host, port = options["master"]
    return RankPortSettings(
        host=host,
        port=port,
        tls=options["rank_tls"],
        is_open=options["insecure_rank_port"],
        interface=options["rank_interface"],
        ranks_here=ranks_here,
    )
