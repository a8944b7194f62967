"""`python -m ranks`: one rank process. The master starts it; people do not.

With `--spare` it loads its code and waits to hear which rank it is (`ranks/spare.py`).
"""

import argparse
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO, cast

import structlog

from ranks.fault_orders import VARIABLE
from ranks.guard import end_process, stand_guard
from ranks.log_sink import LogSink
from ranks.settings import RankSettings
from ranks.spare import read_orders
from ranks.wire.messages import TOKEN_VARIABLE

EXIT_NOT_NEEDED = 0


def main() -> int:
    """Read argv and the environment, stand guard, live; returns the exit code."""
    argv = sys.argv[1:]
    if "--spare" in argv:
        return _wait_and_live(argv)
    settings = parse_settings(argv, token=os.environ.get(TOKEN_VARIABLE, ""))
    stand_guard(settings.death_fd)
    return _live(settings)


def _wait_and_live(argv: Sequence[str]) -> int:
    """Load what a rank needs, and live once it is said which one; 0 if that never is."""
    parser = argparse.ArgumentParser(prog="python -m ranks --spare", description=__doc__)
    parser.add_argument("--spare", action="store_true")
    parser.add_argument("--death-fd", required=True, type=int)
    parser.add_argument("--log-json", action="store_true")
    args = parser.parse_args(argv)
    stand_guard(args.death_fd)
    # Late, because the guard must hold before torch loads.
    importlib.import_module("ranks.worker")
    importlib.import_module("ranks.session")
    orders = read_orders(sys.stdin.buffer)
    if orders is None:
        return EXIT_NOT_NEEDED
    told = (*orders.argv, "--death-fd", str(args.death_fd))
    told += ("--log-json",) if args.log_json else ()
    return _live(parse_settings(told, token=orders.token))


def _live(settings: RankSettings) -> int:
    log_to_stderr(settings.rank, is_json=settings.log_json)
    # Late, because torch takes seconds to load and the guard must hold before that.
    from ranks.link import leave_soon, open_channel  # noqa: PLC0415
    from ranks.session import live  # noqa: PLC0415
    from ranks.worker import ModelWorker  # noqa: PLC0415

    if folder := os.environ.get(VARIABLE):
        return _live_with_faults(folder, settings)
    with open_channel(settings.master, settings.tls) as channel:
        worker = ModelWorker(settings, channel)
        return live(settings, worker, channel, build=build_version(), on_lost=leave_soon)


def _live_with_faults(folder: str, settings: RankSettings) -> int:
    """Live as a rank that fails where it is told to."""
    # Late, as above; and only the chaos kit ever comes here.
    from ranks.faults import Faults  # noqa: PLC0415
    from ranks.link import leave_soon, open_channel  # noqa: PLC0415
    from ranks.session import live  # noqa: PLC0415
    from ranks.worker import ModelWorker  # noqa: PLC0415

    faults = Faults(folder, settings)
    with open_channel(faults.master, settings.tls) as channel:
        worker = faults.wrap(ModelWorker(settings, channel, dress=faults.dress))
        return live(settings, worker, channel, build=build_version(), on_lost=leave_soon)


def parse_settings(argv: Sequence[str], *, token: str) -> RankSettings:
    """Parse the arguments; a wrong one ends the process with its name, as argparse does."""
    parser = argparse.ArgumentParser(prog="python -m ranks", description=__doc__)
    parser.add_argument("--master", required=True, metavar="HOST:PORT")
    parser.add_argument("--rank", required=True, type=int)
    parser.add_argument("--world-size", required=True, type=int)
    parser.add_argument("--death-fd", required=True, type=int)
    parser.add_argument("--log-json", action="store_true")
    parser.add_argument("--tls", type=Path, metavar="DIR")
    parser.add_argument("--bind-host", default="127.0.0.1", metavar="ADDRESS")
    parser.add_argument("--interface", metavar="NAME")
    parser.add_argument("--ranks-here", type=int)
    args = parser.parse_args(argv)
    try:
        return RankSettings(
            master=args.master,
            rank=args.rank,
            world_size=args.world_size,
            death_fd=args.death_fd,
            token=token,
            log_json=args.log_json,
            tls=args.tls,
            bind_host=args.bind_host,
            interface=args.interface,
            ranks_here=args.ranks_here,
        )
    except ValueError as err:
        parser.error(str(err))


def build_version() -> str:
    """Version of the package that this rank runs; the master refuses any other than its own."""
    return importlib.metadata.version("lanehost")


def log_to_stderr(rank: int, *, is_json: bool) -> None:
    """Send every event to standard error as one line that carries the rank's number."""

    def add_rank(
        _logger: object, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        event["rank"] = rank
        return event

    renderer: structlog.typing.Processor
    if is_json:
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.processors.KeyValueRenderer(
            key_order=["timestamp", "level", "event", "rank"], drop_missing=True
        )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            add_rank,
            structlog.processors.format_exc_info,
            renderer,
        ],
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", LogSink(sys.stderr))),
        wrapper_class=structlog.make_filtering_bound_logger("info"),
    )


if __name__ == "__main__":
    end_process(main())
