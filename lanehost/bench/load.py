"""Send requests over gRPC and note when each event arrives.

Laws: all times are of one monotonic clock on this side, read as an event arrives. A request
that fails is noted and stops no other.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from lanehost.bench.reply_times import Arrival, ReplyTimes
from lanehost.bench.workload import Ask
from lanehost.client import AsyncClient
from lanehost.client_codec import Options
from lanehost.client_errors import ClientError

OnReply = Callable[[ReplyTimes], None]


class Clock(Protocol):
    """Seconds that only rise."""

    def now_s(self) -> float:
        """Return the time."""
        ...

    async def wait_until(self, at_s: float) -> None:
        """Wait; returns at once when the time is past."""
        ...


class MonotonicClock:
    """The clock of this machine."""

    def now_s(self) -> float:
        """Return the time."""
        return time.perf_counter()

    async def wait_until(self, at_s: float) -> None:
        """Wait; returns at once when the time is past."""
        await asyncio.sleep(max(0.0, at_s - self.now_s()))


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRound:
    """Replies that were running when a long prompt came, and the long one's own."""

    running: tuple[ReplyTimes, ...]
    long: ReplyTimes


class Load:
    """Asks one server; `on_reply` hears of each reply as it ends."""

    def __init__(self, client: AsyncClient, clock: Clock, on_reply: OnReply) -> None:
        """Take an open client."""
        self._client = client
        self._clock = clock
        self._on_reply = on_reply
        self.first_error: ClientError | None = None

    async def closed(self, asks: Iterable[Ask], *, num_streams: int) -> list[ReplyTimes]:
        """Keep `num_streams` requests open until all are asked: who ends asks the next."""
        source = iter(asks)
        replies: list[ReplyTimes] = []

        async def stream() -> None:
            for ask in source:
                replies.append(await self.ask(ask))  # noqa: PERF401 - one after the other

        async with asyncio.TaskGroup() as group:
            for _ in range(num_streams):
                group.create_task(stream())
        return replies

    async def open(self, asks: Iterable[Ask], arrivals_s: Sequence[float]) -> list[ReplyTimes]:
        """Send each request at its arrival, however many are open by then."""
        started_s = self._clock.now_s()
        tasks: list[asyncio.Task[ReplyTimes]] = []
        async with asyncio.TaskGroup() as group:
            for ask, arrival_s in zip(asks, arrivals_s, strict=False):
                due_s = started_s + arrival_s
                await self._clock.wait_until(due_s)
                tasks.append(group.create_task(self.ask(ask, due_s=due_s)))
        return [task.result() for task in tasks]

    async def long_round(self, asks: Sequence[Ask], long: Ask) -> LongRound:
        """Start a stream for each of `asks`; send `long` when all have a quarter of their reply."""
        behind = set(range(len(asks)))
        ready = asyncio.Event()

        def note(number: int, num_tokens: int) -> None:
            if num_tokens * 4 >= asks[number].max_tokens:
                behind.discard(number)
            if not behind:
                ready.set()

        async def run(number: int) -> ReplyTimes:
            reply = await self.ask(asks[number], on_tokens=partial(note, number))
            note(number, asks[number].max_tokens)  # one that failed is not waited for
            return reply

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(number)) for number in range(len(asks))]
            await ready.wait()
            long_reply = await self.ask(long)
        return LongRound(running=tuple(task.result() for task in tasks), long=long_reply)

    async def ask(
        self,
        ask: Ask,
        *,
        due_s: float | None = None,
        on_tokens: Callable[[int], None] = lambda _: None,
    ) -> ReplyTimes:
        """Send one request and read its reply; `on_tokens` hears how many tokens it has so far."""
        sent_s = self._clock.now_s()
        arrivals: list[Arrival] = []
        usage = failure = None
        num_tokens = 0
        options = Options(max_tokens=ask.max_tokens, ignore_eos=True)
        if ask.disk_cache is not None:
            options["disk_cache"] = ask.disk_cache
        stream = self._client.stream(token_ids=ask.token_ids, **options)
        try:
            async with stream:
                async for delta in stream:
                    if delta.token_ids:
                        count = len(delta.token_ids)
                        arrivals.append(Arrival(at_s=self._clock.now_s(), num_tokens=count))
                        num_tokens += count
                        on_tokens(num_tokens)
            usage = stream.reply.usage
        except ClientError as error:
            self.first_error = self.first_error or error
            failure = type(error).__name__
        reply = ReplyTimes(
            due_s=sent_s if due_s is None else due_s,
            sent_s=sent_s,
            ended_s=self._clock.now_s(),
            arrivals=tuple(arrivals),
            prompt_tokens=0 if usage is None else usage.prompt_tokens,
            cached_tokens=0 if usage is None else usage.cached_tokens,
            disk_cached_tokens=0 if usage is None else usage.disk_cached_tokens,
            failure=failure,
        )
        self._on_reply(reply)
        return reply
