"""The first token when many ask at once: lanehost over gRPC, llama-server over HTTP.

Both servers stand by all the time and are asked in turn, with the same new random prompts.
One clock on the client's side, from when a request is sent until the first event with a token
is there; connections are open before. Neither keeps prompts, neither drafts.
"""

import asyncio
import json
import secrets
import socket
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice

from bench.peers.children import ChildFailed, Command, Running, serving
from bench.peers.outputs import UnknownOutput, read_event
from bench.peers.shape import Shape
from bench.peers.tools import Tools
from lanehost import AsyncClient
from lanehost.bench.load import Load, MonotonicClock
from lanehost.bench.workload import Ask, Lengths, make_asks
from lanehost.client_errors import ClientError

OURS = "lanehost serve"
THEIRS = "llama-server Q4_0"
NUM_CLIENTS = 16
NUM_REPLY_TOKENS = 16
_HOST = "127.0.0.1"
_START_LIMIT_S = 120
_ASK_LIMIT_S = 120
_POLL_S = 0.2
# llama.cpp gives each slot room in steps of so many positions.
_ROOM = 256

AskAll = Callable[[Sequence[Ask]], Awaitable[list[float]]]


@dataclass(slots=True)
class FirstToken:
    """Median seconds to the first token, by side, in each round."""

    rounds: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    peak_bytes: dict[str, int] = field(default_factory=dict[str, int])


def run_first_token(
    tools: Tools, shape: Shape, num_rounds: int, say: Callable[[str], None]
) -> FirstToken:
    """Start both servers, and ask each in turn.

    Raises:
        Absent: llama-server or the native library is not there.
        ChildFailed: A server did not start, or did not answer.
        UnknownOutput: llama-server answered something else.
    """
    tools.llama("llama-server")  # before anything is started
    tools.gguf("Q4_0")
    tools.check_native()
    lengths = Lengths(prompt=(shape.prompt_tokens,), reply=(NUM_REPLY_TOKENS,))
    seed = str(secrets.randbelow(1 << 32))
    with _lanehost(tools, shape) as (ours, our_port), _llama(tools, shape) as (theirs, port):
        found = FirstToken()

        async def run() -> None:
            await _until_llama_is_ready(theirs, port)
            async with AsyncClient(f"{_HOST}:{our_port}") as client:
                ours.check()
                await client.wait_until_serving(_START_LIMIT_S)
                vocab_size = (await client.model()).vocab_size
                asks = make_asks(lengths, vocab_size=vocab_size, seed=seed)
                sides: dict[str, AskAll] = {
                    OURS: lambda some: ask_lanehost(client, some),
                    THEIRS: lambda some: ask_llama(port, some),
                }
                found.rounds = await _rounds(sides, asks, num_rounds, say)

        try:
            asyncio.run(run())
        except (ClientError, OSError, TimeoutError) as err:
            raise ChildFailed(f"a server did not answer: {err!r}") from err
        for name, server in ((OURS, ours), (THEIRS, theirs)):
            server.memory.look()
            found.peak_bytes[name] = server.memory.total
    return found


async def _rounds(
    sides: dict[str, AskAll], asks: Iterator[Ask], num_rounds: int, say: Callable[[str], None]
) -> list[dict[str, float]]:
    """Ask once to warm up, then in turn; who goes first changes with each round."""
    for ask in sides.values():
        await asyncio.wait_for(ask(list(islice(asks, 2))), _ASK_LIMIT_S)
    rounds = []
    for number in range(num_rounds):
        say(f"first token, round {number + 1} of {num_rounds}")
        prompts = list(islice(asks, NUM_CLIENTS))
        one = {}
        for name in sides if number % 2 == 0 else reversed(sides):
            waits_s = await asyncio.wait_for(sides[name](prompts), _ASK_LIMIT_S)
            one[name] = statistics.median(waits_s)
        rounds.append(one)
    return rounds


async def ask_lanehost(client: AsyncClient, asks: Sequence[Ask]) -> list[float]:
    """Send all at once over gRPC; seconds to the first token of each.

    Raises:
        ClientError: One failed.
        UnknownOutput: One had no token.
    """
    load = Load(client, MonotonicClock(), lambda _: None)
    replies = await asyncio.gather(*map(load.ask, asks))
    if load.first_error is not None:
        raise load.first_error
    waits_s = [reply.ttft_s for reply in replies]
    known = [wait_s for wait_s in waits_s if wait_s is not None]
    if len(known) < len(asks):
        raise UnknownOutput("a reply of lanehost has no token")
    return known


async def ask_llama(port: int, asks: Sequence[Ask]) -> list[float]:
    """Send all at once over HTTP; seconds to the first token of each.

    Raises:
        OSError: The connection failed.
        UnknownOutput: A reply has not the tokens that were asked for.
    """
    opened = [await asyncio.open_connection(_HOST, port) for _ in asks]
    try:
        return await asyncio.gather(
            *(_ask_llama(*pair, ask) for pair, ask in zip(opened, asks, strict=True))
        )
    finally:
        for _, writer in opened:
            writer.close()


async def _ask_llama(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ask: Ask) -> float:
    body = json.dumps(
        {
            "prompt": ask.token_ids,
            "n_predict": ask.max_tokens,
            "stream": True,
            "return_tokens": True,
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": False,
        }
    ).encode()
    head = (
        f"POST /completion HTTP/1.1\r\nHost: {_HOST}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    sent_s = time.perf_counter()
    writer.write(head.encode() + body)
    await writer.drain()
    first_s, num_tokens = None, 0
    # Lines of events stand among those that tell the length of a part of the body.
    async for line in reader:
        count = read_event(line)
        if count and first_s is None:
            first_s = time.perf_counter()
        num_tokens = max(num_tokens, count)
    if first_s is None or num_tokens < ask.max_tokens:
        raise UnknownOutput(f"llama-server gave {num_tokens} tokens of {ask.max_tokens}")
    return first_s - sent_s


async def _until_llama_is_ready(server: Running, port: int) -> None:
    """Wait until it says that it is well.

    Raises:
        ChildFailed: It ended.
        TimeoutError: It took too long.
    """
    async with asyncio.timeout(_START_LIMIT_S):
        while True:
            server.check()
            try:
                reader, writer = await asyncio.open_connection(_HOST, port)
            except OSError:
                await asyncio.sleep(_POLL_S)
                continue
            with closing(writer):
                writer.write(b"GET /health HTTP/1.1\r\nHost: l\r\nConnection: close\r\n\r\n")
                if b" 200 " in await reader.readline():
                    return
            await asyncio.sleep(_POLL_S)


@contextmanager
def _lanehost(tools: Tools, shape: Shape) -> Iterator[tuple[Running, int]]:
    port = _free_port()
    command: Command = [
        *(sys.executable, "-m", "lanehost", "serve", "--model", tools.model),
        *("--port", str(port), "--http-port", "off", "--threads", str(shape.num_threads)),
        *("--prompt-cache", "off", "--max-drafts", "0", "--lanes", str(NUM_CLIENTS)),
    ]
    with serving(command) as running:
        yield running, port


@contextmanager
def _llama(tools: Tools, shape: Shape) -> Iterator[tuple[Running, int]]:
    port = _free_port()
    room = -(-(shape.prompt_tokens + NUM_REPLY_TOKENS) // _ROOM) * _ROOM
    threads = str(shape.num_threads)
    command: Command = [
        *(tools.llama("llama-server"), "-m", tools.gguf("Q4_0"), "--host", _HOST),
        *("--port", str(port), "-t", threads, "-tb", threads, "--no-ui", "--no-cache-prompt"),
        *("--cache-ram", "0", "--parallel", str(NUM_CLIENTS), "-c", str(room * NUM_CLIENTS)),
    ]
    with serving(command) as running:
        yield running, port


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
