"""Prompts in passes against the same prompts one by one: equal tokens, and how much sooner.

Two servers of the same model on this machine, asked in turn: A B A B. What counts is the
median of the ratios; single figures of a shared machine do not.

    lanehost serve --prompt-cache off --port 50061 --http-port 0 --max-pass-prompts 16
    lanehost serve --prompt-cache off --port 50062 --http-port 0 --max-pass-prompts 1
    python bench/passes.py --passes 127.0.0.1:50061 --one-by-one 127.0.0.1:50062

A run sends all prompts at once and ends with the last of their first tokens. Exits 1 when
a token differs.
"""

import asyncio
import json
import platform
import random
import statistics
import sys
import time

import click

from lanehost import AsyncClient


def _prompts(count: int, length: int, *, round_number: int) -> list[list[int]]:
    rng = random.Random(f"{count} {length} {round_number}")  # noqa: S311 - no secrets
    return [[rng.randrange(100, 40000) for _ in range(length)] for _ in range(count)]


async def _first_tokens(address: str, prompts: list[list[int]]) -> tuple[float, list[list[int]]]:
    """Send all at once; seconds until the last first token, and the tokens."""
    async with AsyncClient(address) as client:
        started_s = time.perf_counter()
        replies = await asyncio.gather(
            *(
                client.generate(token_ids=prompt, max_tokens=1, ignore_eos=True)
                for prompt in prompts
            )
        )
        return time.perf_counter() - started_s, [list(reply.token_ids) for reply in replies]


async def _compare(addresses: tuple[str, str], *, count: int, length: int, pairs: int) -> dict:
    """Run pairs, the first thrown away; who goes first changes with each pair."""
    seconds: list[tuple[float, float]] = []
    for number in range(pairs + 1):
        prompts = _prompts(count, length, round_number=number)
        order = (0, 1) if number % 2 else (1, 0)
        took = {side: await _first_tokens(addresses[side], prompts) for side in order}
        if took[0][1] != took[1][1]:
            sys.exit(f"tokens differ: {count} prompts of {length} tokens, round {number}")
        seconds.append((took[0][0], took[1][0]))
    measured = seconds[1:]
    return {
        "prompts": count,
        "length": length,
        "passes_s": round(statistics.median(one for one, _ in measured), 3),
        "one_by_one_s": round(statistics.median(other for _, other in measured), 3),
        "ratio": round(statistics.median(other / one for one, other in measured), 2),
    }


@click.command(help=__doc__)
@click.option("--passes", required=True, metavar="ADDRESS", help="The server that shares steps.")
@click.option("--one-by-one", required=True, metavar="ADDRESS", help="The one that does not.")
@click.option("--prompts", default=16, show_default=True, help="Prompts sent at once.")
@click.option("--length", "lengths", default=(8, 32, 128), multiple=True, show_default=True)
@click.option("--pairs", default=7, show_default=True, help="Runs of each, in turn.")
def main(passes: str, one_by_one: str, prompts: int, lengths: tuple[int, ...], pairs: int) -> None:
    """Print a line of JSON for each length."""
    print(json.dumps({"machine": platform.processor() or platform.machine()}))
    for length in lengths:
        found = asyncio.run(
            _compare((passes, one_by_one), count=prompts, length=length, pairs=pairs)
        )
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
