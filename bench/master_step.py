"""What a step costs the master: admission, plan, settling and events, without ranks.

    PYTHONPATH=. python bench/master_step.py --lanes 1 --lanes 16

The engine runs over the fake ranks of the tests, whose model says one token again and
again; what they cost is in the figure, so it is an upper bound. Processor time, since the
machine may be busy.
"""

import asyncio
import json
import logging
import time

import click
import structlog

from tests.support.fake_engine import EngineRig
from tests.support.fake_ranks import FakeRanks, fake_facts
from tests.support.jobs import make_job, read_all


class _SayingOne(FakeRanks):
    """The fake ranks with a model that costs nothing."""

    def _target(self, lane: object) -> int:  # noqa: ARG002 - the signature is the fake's
        return 7


async def _measure(num_lanes: int, num_tokens: int) -> float:
    """Return microseconds of a step in which so many lanes decode."""
    facts = fake_facts(num_lanes=num_lanes, num_blocks=4096, block_size=16, max_step_tokens=512)
    ranks = _SayingOne(facts)
    rig = EngineRig(facts, wrap=lambda _: ranks)
    async with rig.running():
        started_s = time.process_time()
        jobs = [make_job((1, 2, 3), max_tokens=num_tokens) for _ in range(num_lanes)]
        await asyncio.gather(*(read_all(rig.send(job)) for job in jobs))
        took_s = time.process_time() - started_s
    return took_s / len(ranks.plans) * 1e6


@click.command(help=__doc__)
@click.option("--lanes", default=(1, 16), multiple=True, show_default=True)
@click.option("--tokens", default=1000, show_default=True, help="Tokens of each reply.")
def main(lanes: tuple[int, ...], tokens: int) -> None:
    """Print a line of JSON for each number of lanes."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    for num_lanes in lanes:
        microseconds = asyncio.run(_measure(num_lanes, tokens))
        click.echo(json.dumps({"lanes": num_lanes, "us_per_step": round(microseconds)}))


if __name__ == "__main__":
    main()
