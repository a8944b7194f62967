"""`lanehost bench cache`: how soon conversations go on from memory and from disk."""

import asyncio
import secrets
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import click

from lanehost.cli_bench_parts import (
    COUNT,
    model_path,
    said_in_a_line,
    say,
    with_json,
    with_model,
    with_tp,
    write,
)
from lanehost.settings import BLOCK_SIZE

_MAX_SEED = 1 << 32


@click.command()
@with_model
@with_tp
@click.option(
    "--tokens", type=COUNT, default=2000, show_default=True, help="Tokens of a conversation."
)
@click.option(
    "--turn-tokens", type=COUNT, default=32, show_default=True, help="Tokens of its next turn."
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    help="Conversations, and rounds of the load with saving and without.",
)
@click.option(
    "--requests",
    type=click.IntRange(0, 1 << 16),
    default=16,
    show_default=True,
    help="Requests of a round of that load; 0 leaves it out.",
)
@click.option(
    "--streams",
    type=click.IntRange(1, 1024),
    default=4,
    show_default=True,
    help="How many of them are open at once.",
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    metavar="DIR",
    help="Where the files lie meanwhile: on the disk that is to be measured. Default: where "
    "temporary files are.",
)
@click.option("--seed", type=click.IntRange(min=0), metavar="INTEGER", help="Of all prompts.")
@with_json
def cache(json_file: Path | None, **options: Any) -> None:
    """Measure how soon a conversation goes on: cold, from memory, from disk, and after losses.

    Starts servers of its own, ends one, and kills the ranks of another. Then it puts a load on
    a server, which in turn saves all that it computes and none of it.

    \b
    Examples:
      lanehost bench cache
      lanehost bench cache --tp 2 --threads 1 --rounds 9 --folder /var/tmp --json out.json

    \b
    Exit codes: 0 done, 1 a server cannot start, a request failed or nothing was saved, 2 wrong
    command line, 130 stopped with Ctrl-C.
    """  # noqa: D301 - click wants the character itself
    from lanehost.bench.cache_running import run_cache  # noqa: PLC0415
    from lanehost.bench.cache_servers import serving  # noqa: PLC0415
    from lanehost.bench.cache_tiers import CacheBench  # noqa: PLC0415
    from lanehost.chaos.served import ServedHere  # noqa: PLC0415

    seed = options["seed"]
    bench = CacheBench(
        num_tokens=options["tokens"],
        turn_tokens=options["turn_tokens"],
        num_rounds=options["rounds"],
        num_requests=options["requests"],
        num_streams=options["streams"],
        seed=secrets.randbelow(_MAX_SEED) if seed is None else seed,
        block_size=BLOCK_SIZE,
    )
    with said_in_a_line(), tempfile.TemporaryDirectory(dir=options["folder"]) as folder:
        model = model_path(options["model"])
        served = serve_options(model, options)

        def new_server(more: tuple[str, ...]) -> ServedHere:
            return ServedHere((*served, *more), environment={})

        report = asyncio.run(
            run_cache(
                bench,
                partial(serving, new_server),
                Path(folder),
                say,
                model=model.name,
                tp=options["tp"],
            )
        )
        write(report, "cache", json_file)


def serve_options(model: Path, options: dict[str, Any]) -> tuple[str, ...]:
    """Return what a server of the bench is given beside its cache."""
    threads = options["threads"]
    return (
        *("--model", str(model), "--tp", str(options["tp"]), "--port", "0", "--http-port", "off"),
        *("--dtype", options["dtype"], "--weights", options["weights"]),
        *("--device", options["device"]),
        *(() if threads is None else ("--threads", str(threads))),
    )
