"""A stream without a network: the test plays the rank on the other end."""

import asyncio

import grpc.aio

from ranks.wire.codec import decode_master_message, encode_rank_message
from ranks.wire.messages import MasterMessage, RankMessage


class StreamContext:
    """What `RankLink.serve` reads and writes."""

    def __init__(self) -> None:
        self.to_master: asyncio.Queue[object] = asyncio.Queue()
        self.to_rank: asyncio.Queue[bytes] = asyncio.Queue()

    async def read(self) -> object:
        return await self.to_master.get()

    async def write(self, payload: bytes) -> None:
        await self.to_rank.put(payload)

    def say(self, message: RankMessage) -> None:
        self.to_master.put_nowait(encode_rank_message(message))

    def say_bytes(self, payload: bytes) -> None:
        self.to_master.put_nowait(payload)

    def hang_up(self) -> None:
        self.to_master.put_nowait(grpc.aio.EOF)

    async def hear(self) -> MasterMessage:
        return decode_master_message(await self.to_rank.get())
