"""What the journal costs: processor time of the master for a step, and tokens per second.

    PYTHONPATH=. python bench/journal_cost.py
    PYTHONPATH=. python bench/journal_cost.py --served

The first runs the engine over the fake ranks of the tests, with a journal and without in turn,
and prints the medians of the rounds, in microseconds of processor time for a step, what the append
of a step takes by itself, and what an accepted request adds. The second starts one server with
`--journal`, whose journal is told by a signal to take part or not, and asks it in turn for the same
replies without it, with it, and without it once more: it prints ratios of tokens per second to the
first, of which the last says how much a ratio means. Two servers would not do: where the weights of
each happen to lie makes a tenth of a difference. On a busy machine only the append by itself says
much.
"""

import asyncio
import json
import logging
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import click
import structlog

import lanehost.cli
import lanehost.journal.journal
from lanehost import AsyncClient
from lanehost.job import Failed, Finished, Job, StopParams
from lanehost.journal.interface import NoJournal, StreamJournal
from lanehost.journal.journal import Journal
from tests.support.fake_engine import EngineRig
from tests.support.fake_ranks import FakeRanks, fake_facts
from tests.support.jobs import make_job, read_all
from tests.support.journals import open_journal

_SERVED = (
    *("--port", "0", "--http-port", "off", "--threads", "1"),
    *("--prompt-cache", "off", "--max-drafts", "0", "--spare-rank", "off"),
)


class _SayingOne(FakeRanks):
    """The fake ranks with a model that costs nothing."""

    def _target(self, lane: object) -> int:  # noqa: ARG002 - the signature is the fake's
        return 7


async def _us_per_step(journal: StreamJournal, num_lanes: int, num_tokens: int) -> float:
    facts = fake_facts(num_lanes=num_lanes, num_blocks=4096, block_size=16, max_step_tokens=512)
    ranks = _SayingOne(facts)
    rig = EngineRig(facts, wrap=lambda _: ranks, journal=journal)
    jobs = [make_job((1, 2, 3), max_tokens=num_tokens) for _ in range(num_lanes)]
    for job in jobs:
        journal.accept(job, StopParams())
    async with rig.running():
        started_s = time.process_time()
        await asyncio.gather(*(read_all(rig.send(job)) for job in jobs))
        took_s = time.process_time() - started_s
    return took_s / len(ranks.plans) * 1e6


def _us_per_append(journal: StreamJournal, num_lanes: int, count: int = 2000) -> float:
    """Return what appending a token of each of so many streams takes, by itself."""
    jobs = [make_job((1, 2, 3), max_tokens=count) for _ in range(num_lanes)]
    for job in jobs:
        journal.accept(job, StopParams())
    started_s = time.process_time()
    for _ in range(count):
        journal.append([(job.job_id, [40_000]) for job in jobs])
    return (time.process_time() - started_s) / count * 1e6


def _us_per_accept(journal: StreamJournal, num_prompt: int, count: int = 200) -> float:
    jobs = [make_job(tuple(range(num_prompt)), max_tokens=512) for _ in range(count)]
    started_s = time.process_time()
    for job in jobs:
        journal.accept(job, StopParams())
    return (time.process_time() - started_s) / count * 1e6


def _measure_engine(lanes: tuple[int, ...], rounds: int, tokens: int) -> None:
    for num_lanes in lanes:
        found: dict[str, list[float]] = {"without": [], "with": []}
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                for name, journal in (
                    ("without", NoJournal()),
                    ("with", open_journal(Path(folder))),
                ):
                    found[name].append(asyncio.run(_us_per_step(journal, num_lanes, tokens)))
        medians = {name: statistics.median(values) for name, values in found.items()}
        added = medians["with"] - medians["without"]
        line = {name: round(value) for name, value in medians.items()} | {"added": round(added)}
        with tempfile.TemporaryDirectory() as folder:
            append = round(_us_per_append(open_journal(Path(folder)), num_lanes))
        click.echo(json.dumps({"lanes": num_lanes, "us_per_step": line, "us_per_append": append}))
    for num_prompt in (16, 1000):
        with tempfile.TemporaryDirectory() as folder:
            value = _us_per_accept(open_journal(Path(folder)), num_prompt)
        click.echo(json.dumps({"prompt_tokens": num_prompt, "us_per_accept": round(value)}))


async def _tokens_per_s(address: str, streams: int, tokens: int) -> float:
    async with AsyncClient(address) as client:
        started_s = time.perf_counter()
        await asyncio.gather(
            *(
                client.generate(token_ids=range(n + 1, n + 33), max_tokens=tokens, ignore_eos=True)
                for n in range(streams)
            )
        )
        return streams * tokens / (time.perf_counter() - started_s)


class _PausingJournal(Journal):
    """A journal that takes no part while it is told so; between replies only."""

    is_paused = False

    def accept(self, job: Job, stop: StopParams) -> None:
        if not self.is_paused:
            super().accept(job, stop)

    def append(self, drawn: Iterable[tuple[str, Sequence[int]]]) -> None:
        if not self.is_paused:
            super().append(drawn)

    def end(self, job_id: str, event: Finished | Failed) -> None:
        if not self.is_paused:
            super().end(job_id, event)

    def flush(self) -> None:
        if not self.is_paused:
            super().flush()


def _serve(args: tuple[str, ...]) -> None:
    """Be the server, whose journal SIGUSR1 pauses and SIGUSR2 has go on."""

    def pause(number: int, _frame: object) -> None:
        _PausingJournal.is_paused = number == signal.SIGUSR1

    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, pause)
    lanehost.journal.journal.Journal = _PausingJournal
    lanehost.cli.main(["serve", *args])


@asynccontextmanager
async def _serving(folder: str, streams: int) -> AsyncIterator[tuple[str, int]]:
    """Start the server; give its address and its process."""
    args = (*_SERVED, "--lanes", str(streams), "--journal", folder)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, "--be-server", *args), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            if (found := re.search(r"gRPC ([^\s,]+:\d+)", line.decode())) is not None:
                break
        else:
            raise click.ClickException("the server did not start")
        yield found[1], process.pid
    finally:
        process.terminate()
        await process.communicate()


async def _compare(streams: int, rounds: int, tokens: int) -> None:
    found: dict[str, list[float]] = {"without": [], "with": [], "again": []}
    names = list(found)
    with tempfile.TemporaryDirectory() as folder:
        async with _serving(folder, streams) as (address, pid):
            for number in range(rounds + 1):
                # Who goes first changes with the round; the first round is to get warm.
                for name in names[number % 3 :] + names[: number % 3]:
                    os.kill(pid, signal.SIGUSR2 if name == "with" else signal.SIGUSR1)
                    rate = await _tokens_per_s(address, streams, tokens)
                    found[name] += [rate] if number else []
    line: dict[str, object] = {
        "streams": streams,
        "rounds": rounds,
        "tokens_per_s_without": round(statistics.median(found["without"]), 1),
    }
    for name in ("with", "again"):
        ratios = [one / other for one, other in zip(found[name], found["without"], strict=True)]
        low, middle, high = (round(one, 3) for one in statistics.quantiles(ratios, n=4))
        line[name] = {"ratio": middle, "quartiles": [low, high]}
    click.echo(json.dumps(line))


@click.command(help=__doc__, context_settings={"ignore_unknown_options": True})
@click.option("--lanes", default=(1, 16), multiple=True, show_default=True)
@click.option("--rounds", default=7, show_default=True)
@click.option("--tokens", default=400, show_default=True, help="Tokens of each reply.")
@click.option("--served", is_flag=True, help="Measure a server, with the embedded model.")
@click.option("--be-server", is_flag=True, hidden=True)
@click.argument("server_args", nargs=-1, type=click.UNPROCESSED)
def main(
    lanes: tuple[int, ...],
    rounds: int,
    tokens: int,
    server_args: tuple[str, ...],
    *,
    served: bool,
    be_server: bool,
) -> None:
    """Print a line of JSON for each number of lanes, or of streams."""
    if be_server:
        _serve(server_args)
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if not served:
        _measure_engine(lanes, rounds, tokens)
        return
    for streams in lanes:
        asyncio.run(_compare(streams, rounds, tokens))


if __name__ == "__main__":
    main()
