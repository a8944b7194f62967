"""How soon a conversation goes on, by where what was computed of it lies.

    cold      nothing of it is kept: its first turn
    memory    the next turn, at once
    disk      the next turn, once other conversations have taken the blocks
    restart   the next turn, to a server that was ended and started again
    loss      the next turn, after all ranks were killed and have come back

Laws: every turn is asked alone, of a server that has nothing else to do; a turn that did not
find what its tier should have kept is counted as a miss, and its time is in no figure.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol

from lanehost.bench.load import Load
from lanehost.bench.reply_times import ReplyTimes
from lanehost.bench.workload import Ask, random_ids
from lanehost.errors import StartupFailed

_LOOK_S = 0.02


class Tier(Enum):
    """Where what was computed of a conversation lies."""

    COLD = "cold"
    MEMORY = "memory"
    DISK = "disk"
    RESTART = "after a restart"
    LOSS = "after a rank loss"


FROM_DISK = frozenset({Tier.DISK, Tier.RESTART, Tier.LOSS})


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheBench:
    """What is measured: conversations of `num_tokens`, and turns of `turn_tokens` behind them."""

    num_tokens: int
    turn_tokens: int
    num_rounds: int
    num_requests: int
    num_streams: int
    seed: int
    block_size: int
    saved_timeout_s: float = 30.0

    @property
    def kv_tokens(self) -> int:
        """A pool for two conversations, so that others soon take the blocks of one."""
        blocks = -(-(self.num_tokens + self.turn_tokens + 1) // self.block_size)
        return 2 * (blocks + 1) * self.block_size


@dataclass(slots=True)
class Found:
    """Turns by tier, and how many did not find what they should have."""

    turns: dict[Tier, list[ReplyTimes]] = field(default_factory=lambda: {t: [] for t in Tier})
    num_missed: dict[Tier, int] = field(default_factory=lambda: dict.fromkeys(Tier, 0))


class Side(Protocol):
    """A server that the bench has started, and nobody else asks."""

    @property
    def load(self) -> Load:
        """What asks it."""
        ...

    @property
    def vocab_size(self) -> int:
        """Token ids that its model has."""
        ...

    async def lose_ranks(self) -> None:
        """Kill all ranks, and wait until they have come back."""
        ...


# Of more options for `lanehost serve`; the server ends with the block.
NewSide = Callable[[tuple[str, ...]], AbstractAsyncContextManager[Side]]


async def measure_tiers(
    bench: CacheBench,
    new_side: NewSide,
    folder: Path,
    on_tier: Callable[[Tier], None] = lambda _: None,
) -> Found:
    """Ask turn after turn, over one restart and one loss of ranks.

    Raises:
        StartupFailed: A server does not start, or nothing was saved.
        ClientError: A turn failed.
    """
    run = _Run(bench, folder, on_tier)
    async with new_side(run.options) as side:
        run.begin(side)
        for number in range(bench.num_rounds):
            await run.first_server(number)
    async with new_side(run.options) as side:
        run.begin(side)
        await run.all_from(Tier.RESTART)
        await side.lose_ranks()
        await run.all_from(Tier.LOSS)
    return run.found


class _Run:
    """What has been asked and found so far."""

    def __init__(self, bench: CacheBench, folder: Path, on_tier: Callable[[Tier], None]) -> None:
        self._bench = bench
        self._folder = folder
        self._on_tier = on_tier
        self._rng = random.Random(bench.seed)  # noqa: S311 - no secrets
        self._conversations: list[tuple[int, ...]] = []
        self._side: Side | None = None
        self.found = Found()
        self.options = (
            *("--kv-tokens", str(bench.kv_tokens), "--lanes", "1", "--max-drafts", "0"),
            *("--disk-cache", str(folder), "--disk-cache-mode", "full"),
        )

    def begin(self, side: Side) -> None:
        """Go on with a server."""
        self._side = side

    async def first_server(self, number: int) -> None:
        """Begin a conversation, and go on with it from memory and from the disk."""
        if number == 0:
            # What a process does for the first time takes longer.
            await self._ask(self._new_ids(self._bench.num_tokens))
        conversation = self._new_ids(self._bench.num_tokens)
        self._conversations.append(conversation)
        num_saved = self._num_saved()
        self._note(Tier.COLD, await self._ask(conversation))
        await self._wait_saved(num_saved + 1)
        await self._turn(Tier.MEMORY, conversation)
        for _ in range(2):
            await self._ask(self._new_ids(self._bench.num_tokens))
        await self._turn(Tier.DISK, conversation)

    async def all_from(self, tier: Tier) -> None:
        """Go on with every conversation."""
        for conversation in self._conversations:
            await self._turn(tier, conversation)

    async def _turn(self, tier: Tier, conversation: tuple[int, ...]) -> None:
        ids = conversation + self._new_ids(self._bench.turn_tokens)
        self._note(tier, await self._ask(ids))

    async def _ask(self, ids: tuple[int, ...]) -> ReplyTimes:
        assert self._side is not None
        load = self._side.load
        reply = await load.ask(Ask(token_ids=ids, max_tokens=1))
        if load.first_error is not None:
            raise load.first_error
        return reply

    def _note(self, tier: Tier, reply: ReplyTimes) -> None:
        self._on_tier(tier)
        if self._is_of(tier, reply):
            self.found.turns[tier].append(reply)
        else:
            self.found.num_missed[tier] += 1

    def _is_of(self, tier: Tier, reply: ReplyTimes) -> bool:
        whole = self._bench.num_tokens - self._bench.block_size
        match tier:
            case Tier.COLD:
                return reply.cached_tokens == 0
            case Tier.MEMORY:
                return reply.cached_tokens >= whole and reply.disk_cached_tokens == 0
            case _:
                return reply.disk_cached_tokens >= whole

    def _new_ids(self, count: int) -> tuple[int, ...]:
        assert self._side is not None
        return random_ids(self._rng, count, self._side.vocab_size)

    def _num_saved(self) -> int:
        return len(list(self._folder.glob("*/*.manifest")))

    async def _wait_saved(self, count: int) -> None:
        """Wait for the files of an entry: the last of them is its manifest."""
        try:
            async with asyncio.timeout(self._bench.saved_timeout_s):
                while self._num_saved() < count:  # noqa: ASYNC110 - a folder tells nobody
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise StartupFailed(
                f"no prefix was saved within {self._bench.saved_timeout_s:g} s: "
                "the server's log says why"
            ) from None
