"""What `serve` and `launch` are told of the prompt cache on disk."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from lanehost.disk_cache.policy import parse_mode
from lanehost.settings import DEFAULT_DISK_BUDGET, DiskSettings

_SIZE = re.compile(r"(\d{1,12})([kmgt]i?b|b)?", re.IGNORECASE)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


class Size(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """Bytes: a number alone, or with KiB, MiB, GiB, TiB, or kB, MB, GB, TB.

    >>> Size().convert("4GiB", None, None), Size().convert("2MB", None, None)
    (4294967296, 2000000)
    """

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it; a number has been read already."""
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"{value!r} should be a size, like 4GiB or 500MB", param, ctx)
        number, unit = int(found[1]), (found[2] or "b").lower()
        if unit == "b":
            return number
        return int(number * (1024 if "i" in unit else 1000) ** _POWERS[unit[0]])


# Any: what click.option gives takes a function or a command, and gives it back.
DISK_OPTIONS: tuple[Any, ...] = (
    click.option(
        "--disk-cache",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Keep what was computed of prompts in files there, too: it lives through restarts. "
        "Prompts are in it. On several hosts it is the same path on each.",
    ),
    click.option(
        "--disk-cache-mode",
        metavar="off|full|auto[:N]|N",
        help="With --disk-cache: what is worth files. `auto` (default): what a request shares with "
        "one of the last 64, or N, of its scope; `full`: all of every request; N: every N tokens; "
        "`off`: nothing more, what is there is used.",
    ),
    click.option(
        "--disk-cache-budget",
        type=Size(),
        metavar="SIZE",
        help="With --disk-cache: most that its files take, over all ranks; default 8GiB.",
    ),
    click.option(
        "--cache-self-check",
        type=int,
        metavar="N",
        help="With --disk-cache: compute one in N replies that hit there again, in the "
        "background, and compare.",
    ),
)


def build_disk(options: Mapping[str, Any]) -> DiskSettings | None:
    """Turn the options into settings; None without `--disk-cache`.

    Raises:
        click.UsageError: an option needs another, or contradicts it.
        StartupFailed: a mode is none.
    """
    folder, mode = options["disk_cache"], options["disk_cache_mode"]
    budget, self_check = options["disk_cache_budget"], options["cache_self_check"]
    if folder is None:
        needs = {
            "--disk-cache-mode": mode,
            "--disk-cache-budget": budget,
            "--cache-self-check": self_check,
        }
        for name, value in needs.items():
            if value is not None:
                raise click.UsageError(f"{name} needs --disk-cache DIR")
        return None
    if options["prompt_cache"] == "off":
        raise click.UsageError("--disk-cache and --prompt-cache off contradict each other")
    if options["record"] is not None:
        raise click.UsageError(
            "--disk-cache and --record contradict each other: what comes from files is in no "
            "trail, so it could not be run again"
        )
    return DiskSettings(
        folder=folder,
        mode=parse_mode(mode or "auto"),
        budget_bytes=DEFAULT_DISK_BUDGET if budget is None else budget,
        self_check=self_check or 0,
    )
