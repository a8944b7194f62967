"""How long streams of text wait while pictures arrive: staged, and with passes run whole.

Two streams run; three requests with one picture and one with eight arrive at once. What counts is
the longest time between two tokens of a stream. Each request is asked alone, too: its tokens must
be the same, or the exit is 1.

    python bench/image_stalls.py make ./gemma                    # random weights, 100 M of them
    lanehost serve --model ./gemma --prompt-cache off --port 50061 --http-port off
    lanehost serve --model ./gemma --prompt-cache off --port 50062 --http-port off \
        --max-stall-ms 0 --staged-rows 1024
    python bench/image_stalls.py run --staged 127.0.0.1:50061 --whole 127.0.0.1:50062

The servers are asked in turn: while one is, the other is idle.
"""

import asyncio
import io
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

import click

from lanehost import AsyncClient, Image

_WORDS = ["alpha", "beta", "gamma", "delta", "zeta", "eta", "theta", "iota", "kappa", "mu"]
# A random model says the same for ever when it is greedy.
_DRAWN = {"temperature": 1.0, "seed": 7}


@click.group(help=__doc__)
def main() -> None:
    """Make a model, or measure two servers of it."""


@main.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def make(folder: Path) -> None:
    """Write a Gemma 3 with random weights: 18 layers of 640, pictures of 256 tokens."""
    # Of the tests, and with what they need: nobody serves such a model.
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.support import tiny_gemma3  # noqa: PLC0415 - only `make` needs torch

    text = {
        "hidden_size": 640,
        "intermediate_size": 2048,
        "num_hidden_layers": 18,
        "num_attention_heads": 4,
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "max_position_embeddings": 8192,
        "sliding_window": 512,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 3,
        "initializer_range": 0.05,
    }
    eyes = {
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "image_size": 448,
        "patch_size": 14,
        "tokens": 256,
    }
    folder.mkdir(parents=True, exist_ok=True)
    tiny_gemma3.write_tiny_gemma3(folder, eyes=eyes, **text)
    _enlarge(folder, size=448, num_tokens=256)


def _enlarge(folder: Path, *, size: int, num_tokens: int) -> None:
    """Have the processor of a folder make pictures as large as its tower takes them."""
    for name, changes in (
        (
            "preprocessor_config.json",
            {"size": {"height": size, "width": size}, "image_seq_length": num_tokens},
        ),
        ("processor_config.json", {"image_seq_length": num_tokens}),
    ):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@main.command()
@click.option("--staged", required=True, metavar="ADDRESS", help="The server as it is.")
@click.option("--whole", required=True, metavar="ADDRESS", help="The one of whole passes.")
@click.option("--tokens", default=150, show_default=True, help="Of each stream of text.")
@click.option("--rounds", default=3, show_default=True, help="Runs of each, in turn.")
def run(staged: str, whole: str, tokens: int, rounds: int) -> None:
    """Print a line of JSON for each server."""
    print(json.dumps({"machine": platform.processor() or platform.machine()}), flush=True)
    found: dict[str, list[dict[str, float]]] = {"staged": [], "whole": []}
    addresses = {"staged": staged, "whole": whole}
    solo = asyncio.run(_solo(staged, tokens))
    for number in range(rounds):
        for name in sorted(addresses, reverse=bool(number % 2)):
            figures, replies = asyncio.run(_in_company(addresses[name], tokens))
            if replies != solo:
                sys.exit(f"replies of {name} differ from those of each alone, round {number}")
            found[name].append(figures)
    for name, rows in found.items():
        medians = {key: round(statistics.median(row[key] for row in rows), 3) for key in rows[0]}
        worst = round(max(row["longest_pause_s"] for row in rows), 3)
        line = {"server": name, "rounds": rounds, **medians, "worst_pause_s": worst}
        print(json.dumps(line), flush=True)


def _picture(number: int) -> bytes:
    """A PNG of its own: large stripes, and no noise, so that it is small."""
    from PIL import Image as Pixels  # noqa: PLC0415 - only `run` needs it

    pixels = Pixels.new("RGB", (448, 448), (40 * number % 256, 90, 200))
    pixels.paste((200, 30 * number % 256, 60), (0, 0, 40 * number, 448))
    out = io.BytesIO()
    pixels.save(out, "PNG")
    return out.getvalue()


def _texts() -> list[str]:
    return [" ".join(_WORDS[:5]), " ".join(_WORDS[5:])]


def _chats() -> list[list[dict[str, object]]]:
    """Three questions with one picture each, and one with eight."""
    numbers = ((1,), (2,), (3,), tuple(range(1, 9)))
    return [
        [{"role": "user", "content": [*(Image(_picture(n)) for n in some), _WORDS[len(some)]]}]
        for some in numbers
    ]


async def _solo(address: str, tokens: int) -> list[tuple[int, ...]]:
    replies = []
    async with AsyncClient(address) as client:
        for text in _texts():
            reply = await client.generate(text, max_tokens=tokens, ignore_eos=True, **_DRAWN)
            replies.append(tuple(reply.token_ids))
        for chat in _chats():
            reply = await client.generate(messages=chat, max_tokens=4, ignore_eos=True, **_DRAWN)
            replies.append(tuple(reply.token_ids))
    return replies


async def _in_company(address: str, tokens: int) -> tuple[dict[str, float], list[tuple[int, ...]]]:
    async with AsyncClient(address) as client:
        running = [_Stream(client, text, tokens) for text in _texts()]
        reading = [asyncio.create_task(one.read()) for one in running]
        await asyncio.gather(*(one.has_begun.wait() for one in running))
        # Some tokens without pictures, to compare with.
        await asyncio.sleep(1.0)
        arrived_s = time.perf_counter()
        asked = [asyncio.create_task(_ask(client, chat, arrived_s)) for chat in _chats()]
        answers = [await one for one in asked]
        done_s = time.perf_counter()
        for one in reading:
            await one
    pauses = [pause for one in running for pause in one.pauses(arrived_s, done_s)]
    figures = {
        "longest_pause_s": max(pauses),
        "median_pause_s": statistics.median(pauses),
        "median_pause_before_s": statistics.median(
            pause for one in running for pause in one.pauses(0.0, arrived_s)
        ),
        "one_picture_s": statistics.median(took_s for _, took_s in answers[:3]),
        "eight_pictures_s": answers[3][1],
    }
    replies = [tuple(one.token_ids) for one in running]
    return figures, [*replies, *(token_ids for token_ids, _ in answers)]


async def _ask(
    client: AsyncClient, chat: list[dict[str, object]], arrived_s: float
) -> tuple[tuple[int, ...], float]:
    reply = await client.generate(messages=chat, max_tokens=4, ignore_eos=True, **_DRAWN)
    return tuple(reply.token_ids), time.perf_counter() - arrived_s


class _Stream:
    """A stream of text, and when its tokens came."""

    def __init__(self, client: AsyncClient, text: str, tokens: int) -> None:
        self._stream = client.stream(text, max_tokens=tokens, ignore_eos=True, **_DRAWN)
        self._times_s: list[float] = []
        self.token_ids: list[int] = []
        self.has_begun = asyncio.Event()

    async def read(self) -> None:
        async for delta in self._stream:
            self.token_ids += delta.token_ids
            if delta.token_ids:
                self._times_s.append(time.perf_counter())
                self.has_begun.set()

    def pauses(self, since_s: float, until_s: float) -> list[float]:
        """Return the times between tokens, of those that came in this time."""
        pairs = zip(self._times_s, self._times_s[1:], strict=False)
        return [after - before for before, after in pairs if since_s < after <= until_s]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
