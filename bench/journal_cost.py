"""What the journal costs: processor time of the master for a step, and tokens per second.

    PYTHONPATH=. python bench/journal_cost.py
    PYTHONPATH=. python bench/journal_cost.py --without 127.0.0.1:50051 --with 127.0.0.1:50061

The first runs the engine over the fake ranks of the tests, with a journal and without in turn,
and prints the medians of the rounds, in microseconds of processor time for a step, what the append
of a step takes by itself, and what an accepted request adds. The second asks two servers in turn,
of which the second was started with `--journal DIR`, for the same replies, and prints the ratio of
tokens per second: the median of the ratios of neighbouring rounds, and their quartiles. Start both
with `--prompt-cache off --max-drafts 0`. On a busy machine only the append by itself says much.
"""

import asyncio
import json
import logging
import statistics
import tempfile
import time
from pathlib import Path

import click
import structlog

from lanehost import AsyncClient
from lanehost.job import StopParams
from lanehost.journal.interface import NoJournal, StreamJournal
from tests.support.fake_engine import EngineRig
from tests.support.fake_ranks import FakeRanks, fake_facts
from tests.support.jobs import make_job, read_all
from tests.support.journals import open_journal


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


async def _compare(without: str, with_: str, streams: int, rounds: int, tokens: int) -> None:
    ratios, rates = [], []
    for number in range(rounds + 1):
        # Who goes first changes with the round; the first round is to get warm.
        order = (without, with_) if number % 2 else (with_, without)
        rate = {one: await _tokens_per_s(one, streams, tokens) for one in order}
        if number:
            ratios.append(rate[with_] / rate[without])
            rates.append(rate[without])
    low, _, high = statistics.quantiles(ratios, n=4)
    click.echo(
        json.dumps(
            {
                "streams": streams,
                "rounds": rounds,
                "tokens_per_s_without": round(statistics.median(rates), 1),
                "ratio": round(statistics.median(ratios), 3),
                "quartiles": [round(low, 3), round(high, 3)],
            }
        )
    )


@click.command(help=__doc__)
@click.option("--lanes", default=(1, 16), multiple=True, show_default=True)
@click.option("--rounds", default=7, show_default=True)
@click.option("--tokens", default=400, show_default=True, help="Tokens of each reply.")
@click.option("--without", help="HOST:PORT of a server without a journal.")
@click.option("--with", "with_", help="HOST:PORT of one with a journal.")
def main(
    lanes: tuple[int, ...], rounds: int, tokens: int, without: str | None, with_: str | None
) -> None:
    """Print a line of JSON for each number of lanes, or of streams."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if without is None or with_ is None:
        _measure_engine(lanes, rounds, tokens)
        return
    for streams in lanes:
        asyncio.run(_compare(without, with_, streams, rounds, tokens))


if __name__ == "__main__":
    main()
