"""Servers for `bench cache` that are made up: two prompts in memory, all of them on disk."""

import json
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from lanehost.bench.reply_times import Arrival, ReplyTimes
from lanehost.bench.workload import Ask
from lanehost.client_errors import ClientError

BLOCK_SIZE = 16
COLD_S, DISK_S, MEMORY_S = 2.0, 0.2, 0.1


class FakeSide:
    """One server; what is on disk is shared with those after it."""

    vocab_size = 1000

    def __init__(self, world: "FakeWorld", options: tuple[str, ...]) -> None:
        self.world = world
        self.options = options
        self.load = self
        self.first_error: ClientError | None = None
        self.memory: deque[tuple[int, ...]] = deque(maxlen=2)
        self.num_losses = 0

    async def lose_ranks(self) -> None:
        self.num_losses += 1
        self.memory.clear()

    async def ask(self, ask: Ask) -> ReplyTimes:
        world, ids = self.world, ask.token_ids
        disk = world.disk if "--disk-cache" in self.options else []
        in_memory, on_disk = _longest(self.memory, ids), _longest(disk, ids)
        num_cached = len(max(in_memory, on_disk, key=len)) // BLOCK_SIZE * BLOCK_SIZE
        is_from_disk = len(on_disk) > len(in_memory)
        took_s = (DISK_S if is_from_disk else MEMORY_S) if num_cached else COLD_S
        self.memory.append(ids)
        world.asks.append(ask)
        if world.saves and "--disk-cache" in self.options and ask.disk_cache != "off":
            world.save(Path(self.options[self.options.index("--disk-cache") + 1]), ids)
        world.now_s += took_s
        self.first_error = world.fails
        return ReplyTimes(
            due_s=world.now_s - took_s,
            sent_s=world.now_s - took_s,
            ended_s=world.now_s,
            arrivals=(Arrival(at_s=world.now_s, num_tokens=ask.max_tokens),),
            prompt_tokens=len(ids),
            cached_tokens=num_cached,
            disk_cached_tokens=num_cached if is_from_disk else 0,
        )

    async def closed(self, asks: Iterable[Ask], *, num_streams: int) -> list[ReplyTimes]:
        return [await self.ask(ask) for ask in asks]


class FakeWorld:
    """Servers one after the other or beside one another, and their disk."""

    def __init__(self, *, saves: bool = True, fails: ClientError | None = None) -> None:
        self.saves = saves
        self.fails = fails
        self.disk: list[tuple[int, ...]] = []
        self.num_saved = 0
        self.sides: list[FakeSide] = []
        self.asks: list[Ask] = []
        self.now_s = 100.0

    @asynccontextmanager
    async def new_side(self, options: tuple[str, ...]) -> AsyncIterator[FakeSide]:
        self.sides.append(FakeSide(self, options))
        yield self.sides[-1]

    def save(self, folder: Path, ids: tuple[int, ...]) -> None:
        self.disk.append(ids)
        self.num_saved += 1
        write_file(folder, self.num_saved, num_tokens=len(ids), num_bytes=10 * len(ids))


def _longest(kept: Iterable[tuple[int, ...]], ids: tuple[int, ...]) -> tuple[int, ...]:
    return max((one for one in kept if ids[: len(one)] == one), key=len, default=())


def write_file(folder: Path, number: int, *, num_tokens: int, num_bytes: int) -> None:
    """An entry of one rank: a file that says what it covers, and a manifest."""
    layout = folder / "layout"
    layout.mkdir(parents=True, exist_ok=True)
    head = json.dumps({"__metadata__": {"num_tokens": str(num_tokens)}}).encode()
    payload = len(head).to_bytes(8, "little") + head
    (layout / f"{number}.r0of1.safetensors").write_bytes(payload.ljust(num_bytes))
    (layout / f"{number}.manifest").write_bytes(b"")
