"""Replicas on Ray: one against two, and prompts sent by their beginning against in turn.

Chats of several turns, each with the reply of the last one in its prompt, so that most of a
prompt was computed before, by whoever answered the turn before. Three ways are run in turn, each
on servers that are started anew:

    one        one replica
    affine     two, each prompt where its beginning is known
    in turn    two, one after the other (Ray's own round robin)

    pip install 'lanehost[ray]'
    PYTHONPATH=. python bench/replicas.py --rounds 3

What counts is the share of prompt tokens that came from the prompt cache: it does not depend on
what else the machine does. The rate does. Every server has one thread. Exits 1 when a reply
of one way is not the reply of another.
"""

import asyncio
import json
import os
import platform
import random
import socket
import statistics
import sys
import time
from dataclasses import dataclass

import click
import httpx

from lanehost.embedded import EMBEDDED_NAME

# Before Ray is loaded.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray import serve
from ray.serve.config import RequestRouterConfig

from lanehost.replicas.app import build, build_with
from lanehost.replicas.options import ReplicasOptions

_IN_TURN = "ray.serve.experimental.round_robin_router.RoundRobinRouter"
_WAYS = {"one": 1, "affine": 2, "in turn": 2}
_WORDS = [
    "river",
    "stone",
    "lamp",
    "winter",
    "garden",
    "letter",
    "silver",
    "music",
    "window",
    "harbor",
    "forest",
    "engine",
    "paper",
    "morning",
    "bridge",
    "copper",
    "meadow",
    "signal",
    "anchor",
    "velvet",
]
_OBJECT_STORE_BYTES = 80 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Load:
    """What clients do."""

    chats: int
    turns: int
    at_once: int
    system_words: int
    max_tokens: int


@dataclass(kw_only=True)
class Counted:
    """What came of it."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    seconds: float = 0.0


def _words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(count))


async def _chat(
    client: httpx.AsyncClient, rng: random.Random, load: Load, counted: Counted
) -> list[str]:
    messages = [{"role": "system", "content": _words(rng, load.system_words)}]
    said: list[str] = []
    for _ in range(load.turns):
        messages.append({"role": "user", "content": _words(rng, 12)})
        body = {
            "model": EMBEDDED_NAME,
            "messages": messages,
            "max_tokens": load.max_tokens,
            "ignore_eos": True,
        }
        reply = await client.post("/v1/chat/completions", json=body)
        reply.raise_for_status()
        value = reply.json()
        usage = value["usage"]
        counted.prompt_tokens += usage["prompt_tokens"]
        counted.cached_tokens += usage["prompt_tokens_details"]["cached_tokens"]
        counted.generated_tokens += usage["completion_tokens"]
        messages.append(value["choices"][0]["message"] | {"refusal": None})
        said.append(messages[-1]["content"])
    return said


async def _run(url: str, load: Load, seed: str) -> tuple[Counted, list[list[str]]]:
    """Run all chats, so many at once; gives what was counted and every reply."""
    counted, places = Counted(), asyncio.Semaphore(load.at_once)
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:

        async def one(number: int) -> list[str]:
            async with places:
                rng = random.Random(f"{seed} {number}")  # noqa: S311 - no secrets
                return await _chat(client, rng, load, counted)

        started_s = time.perf_counter()
        said = await asyncio.gather(*map(one, range(load.chats)))
        counted.seconds = time.perf_counter() - started_s
    return counted, said


def _measure(way: str, url: str, load: Load, seed: str) -> tuple[Counted, list[list[str]]]:
    options = ReplicasOptions(
        replicas=_WAYS[way], options=f"--threads 1 --model-name {EMBEDDED_NAME}"
    )
    if way == "in turn":
        app = build_with(options, RequestRouterConfig(request_router_class=_IN_TURN))
    else:
        app = build(options)
    serve.run(app, name="bench")
    try:
        return asyncio.run(_run(url, load, seed))
    finally:
        serve.delete("bench")


def _report(counts: dict[str, list[Counted]], load: Load) -> dict:
    shares = {
        way: [round(one.cached_tokens / one.prompt_tokens, 3) for one in rounds]
        for way, rounds in counts.items()
    }
    rates = {
        way: [round(one.generated_tokens / one.seconds, 2) for one in rounds]
        for way, rounds in counts.items()
    }

    def ratio(way: str, other: str) -> float:
        pairs = zip(rates[way], rates[other], strict=True)
        return round(statistics.median(mine / theirs for mine, theirs in pairs), 2)

    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "load": vars(load),
        "ray": ray.__version__,
        "share_from_prompt_cache": shares,
        "generated_tokens_per_s": rates,
        "rate_two_affine_to_one": ratio("affine", "one"),
        "rate_affine_to_in_turn": ratio("affine", "in turn"),
    }


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Times that each way is run.")
@click.option("--chats", default=12, show_default=True, help="Chats of a run.")
@click.option("--turns", default=4, show_default=True, help="Turns of a chat.")
@click.option("--at-once", default=6, show_default=True, help="Chats that run at once.")
@click.option("--system-words", default=60, show_default=True, help="Words of a system prompt.")
@click.option("--max-tokens", default=16, show_default=True, help="Tokens of a reply.")
def main(rounds: int, **load_options: int) -> None:
    """Run all ways in turn and print one JSON object."""
    load = Load(**load_options)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ray.init(
        num_cpus=max(_WAYS.values()),
        include_dashboard=False,
        log_to_driver=False,
        logging_level="warning",
        object_store_memory=_OBJECT_STORE_BYTES,
    )
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    counts: dict[str, list[Counted]] = {way: [] for way in _WAYS}
    for number in range(rounds):
        replies = []
        for way in _WAYS:
            counted, said = _measure(way, f"http://127.0.0.1:{port}", load, f"round {number}")
            counts[way].append(counted)
            replies.append(said)
            click.echo(f"round {number}, {way}: {counted}", err=True)
        if any(said != replies[0] for said in replies):
            sys.exit(f"replies differ in round {number}")
    click.echo(json.dumps(_report(counts, load), indent=2))
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
