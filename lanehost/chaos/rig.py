"""A server with all that looks at it: what a trial of one cell works with."""

import random
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from lanehost.chaos.health import HealthSeen, health_watched
from lanehost.chaos.orders import Orders
from lanehost.chaos.served import ServedHere
from lanehost.chaos.streams import Streams, make_asked
from lanehost.client import AsyncClient

NUM_ASKED = 4
_TOKENS = 96
_FREE_PORTS = ("--port", "0", "--http-port", "0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How servers are started: what `lanehost serve` is given beside ports."""

    serve_args: tuple[str, ...]
    tp: int
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """A server that is ready, and its undisturbed replies."""

    setup: Setup
    served: ServedHere
    orders: Orders
    health: HealthSeen
    client: AsyncClient
    streams: Streams
    poison_token: int
    vocab_size: int


@asynccontextmanager
async def starting(setup: Setup) -> AsyncIterator[tuple[ServedHere, Orders]]:
    """Make a server whose ranks take orders, on free ports; entering it starts it."""
    with tempfile.TemporaryDirectory(prefix="lanehost-chaos-") as folder:
        orders = Orders(Path(folder))
        served = ServedHere((*setup.serve_args, *_FREE_PORTS), environment=orders.environment)
        yield served, orders


@asynccontextmanager
async def rigged(setup: Setup) -> AsyncIterator[Rig]:
    """Start a server, wait until it is ready, and take its undisturbed replies."""
    async with AsyncExitStack() as stack:
        served, orders = await stack.enter_async_context(starting(setup))
        await stack.enter_async_context(served)
        await served.wait_ready()
        health = await stack.enter_async_context(health_watched(served.grpc_address))
        client = await stack.enter_async_context(AsyncClient(served.grpc_address))
        vocab_size = (await client.model()).vocab_size
        rng = random.Random(setup.seed)  # noqa: S311 - no secrets
        asked = make_asked(rng, NUM_ASKED, vocab_size=vocab_size, tokens=_TOKENS)
        streams = Streams(client, asked)
        await streams.take_undisturbed()
        yield Rig(
            setup=setup,
            served=served,
            orders=orders,
            health=health,
            client=client,
            streams=streams,
            poison_token=streams.token_of_first_alone(),
            vocab_size=vocab_size,
        )
