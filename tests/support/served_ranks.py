"""A real rank server on a free port, and a plain client of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc.aio

from lanehost.rank_group.link import RankLink
from lanehost.rank_group.rank_server import RankServer
from lanehost.rank_group.store import RendezvousStore
from ranks.wire.codec import encode_rank_message
from ranks.wire.messages import SERVICE_NAME, RankMessage
from tests.support.rank_facts import terms


@dataclass
class Served:
    """A running server and what it told."""

    address: str
    store: RendezvousStore
    links: asyncio.Queue[RankLink] = field(default_factory=asyncio.Queue)
    refused: list[str] = field(default_factory=list)
    messages: asyncio.Queue[RankMessage] = field(default_factory=asyncio.Queue)
    ends: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    server: RankServer | None = None

    def take_link(self, link: RankLink) -> None:
        link.deliver_to(self.messages.put_nowait, self.ends.put_nowait)
        self.links.put_nowait(link)

    async def next_link(self) -> RankLink:
        return await asyncio.wait_for(self.links.get(), 5)


@asynccontextmanager
async def served_ranks(**term_changes: object) -> AsyncIterator[Served]:
    served = Served(address="", store=RendezvousStore())
    server = RankServer(
        terms=terms(**term_changes),
        store=served.store,
        on_link=served.take_link,
        on_refused=served.refused.append,
    )
    served.server = server
    for rank in (0, 1):
        server.expect(rank)
    served.address = await server.start()
    try:
        yield served
    finally:
        await server.stop()


@asynccontextmanager
async def dialled(address: str, *first: RankMessage) -> AsyncIterator[grpc.aio.StreamStreamCall]:
    """A stream on which `first` was said."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(f"/{SERVICE_NAME}/Connect")()
        for message in first:
            await call.write(encode_rank_message(message))
        yield call
        call.cancel()
