"""The load of a chaos run: streams that ask again and again, held against undisturbed replies.

Laws: every request that is sent has one record, and ends in one way; a reply is equal when its
tokens and the reason of its end are those that the same request gave by itself, before any fault.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lanehost.bench.workload import random_ids
from lanehost.client import AsyncClient
from lanehost.client_codec import Reply
from lanehost.client_errors import ClientError


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request; `temperature` 0 is greedy."""

    token_ids: tuple[int, ...]
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0

    @property
    def options(self) -> dict[str, float]:
        """How it draws, as a client says it."""
        return {"temperature": self.temperature, "seed": self.seed} if self.temperature else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How one request ended: `error` is None for a reply, `is_equal` None for an error."""

    number: int
    sent_s: float
    ended_s: float
    num_tokens: int
    error: str | None = None
    is_equal: bool | None = None


def make_asked(rng: random.Random, count: int, *, vocab_size: int, tokens: int) -> list[Asked]:
    """Make so many different requests, every second one seeded, none longer than `tokens`."""
    asked = []
    for number in range(count):
        prompt = rng.randrange(max(1, tokens // 8), max(2, tokens // 3))
        asked.append(
            Asked(
                token_ids=random_ids(rng, prompt, vocab_size),
                max_tokens=rng.randrange(max(1, tokens // 3), max(2, tokens - prompt)),
                temperature=0.8 if number % 2 else 0.0,
                seed=rng.randrange(1 << 32),
            )
        )
    return asked


class Streams:
    """Streams of one client; `arrivals_s` are the times at which tokens came, of all of them."""

    def __init__(self, client: AsyncClient, asked: Sequence[Asked]) -> None:
        """Ask nothing yet; the client must be open."""
        self._client = client
        self._asked = asked
        self._alone: list[Reply] = []
        self._is_stopping = False
        self._changed = asyncio.Event()
        self.num_sent = 0
        # Of each open request, when its last token came; None before the first.
        self._heard_s: dict[int, float | None] = {}
        self.endings: list[Ending] = []
        self.arrivals_s: list[float] = []

    @property
    def num_open(self) -> int:
        """Requests that were sent and have not ended."""
        return len(self._heard_s)

    @property
    def num_asked(self) -> int:
        """How many different requests there are."""
        return len(self._asked)

    async def take_undisturbed(self) -> None:
        """Ask each request by itself, and keep the replies."""
        for asked in self._asked:
            reply = await self._client.generate(
                token_ids=asked.token_ids,
                max_tokens=asked.max_tokens,
                ignore_eos=True,
                **asked.options,  # type: ignore[arg-type]  # by name, as the client's own Options
            )
            self._alone.append(reply)

    def token_of_first_alone(self) -> int:
        """Give a token of the first prompt that no other request ever feeds.

        Raises:
            StopIteration: There is none.
        """
        others = {
            token_id
            for asked, reply in zip(self._asked[1:], self._alone[1:], strict=True)
            for token_id in (*asked.token_ids, *reply.token_ids)
        }
        return next(token_id for token_id in self._asked[0].token_ids if token_id not in others)

    async def run(self, num_streams: int) -> None:
        """Keep so many requests open until `stop`; returns when all have ended."""
        async with asyncio.TaskGroup() as group:
            for first in range(num_streams):
                group.create_task(self._stream(first))

    def stop(self) -> None:
        """Let nobody ask again."""
        self._is_stopping = True

    async def wait_token(self, *, since_s: float, within_s: float) -> bool:
        """Wait for a token that comes after a time; says whether one did."""
        return await self._wait(
            lambda: bool(self.arrivals_s) and self.arrivals_s[-1] > since_s, within_s
        )

    async def wait_all(self, *, since_s: float, within_s: float) -> bool:
        """Wait until whatever is open has had a token after a time; says whether it has."""

        def have_all() -> bool:
            heard = self._heard_s.values()
            return bool(heard) and all(at_s is not None and at_s > since_s for at_s in heard)

        return await self._wait(have_all, within_s)

    async def _wait(self, is_so: Callable[[], bool], within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                while not is_so():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def ask(self, number: int) -> Ending:
        """Send one request, read its reply, and note how it ended."""
        asked = self._asked[number]
        sent_s, num_tokens = time.monotonic(), 0
        self.num_sent += 1
        key = self.num_sent
        self._heard_s[key] = None
        stream = self._client.stream(
            token_ids=asked.token_ids,
            max_tokens=asked.max_tokens,
            ignore_eos=True,
            **asked.options,  # type: ignore[arg-type]  # as above
        )
        error, is_equal = None, None
        try:
            async with stream:
                async for delta in stream:
                    num_tokens += len(delta.token_ids)
                    self._heard_s[key] = time.monotonic()
                    self.arrivals_s.append(time.monotonic())
                    self._changed.set()
            is_equal = self._is_undisturbed(number, stream.reply)
        except ClientError as failed:
            error = type(failed).__name__
        finally:
            del self._heard_s[key]
            self._changed.set()
        ending = Ending(
            number=number,
            sent_s=sent_s,
            ended_s=time.monotonic(),
            num_tokens=num_tokens,
            error=error,
            is_equal=is_equal,
        )
        self.endings.append(ending)
        return ending

    async def _stream(self, first: int) -> None:
        number = first
        while not self._is_stopping:
            await self.ask(number % len(self._asked))
            number += 1

    def _is_undisturbed(self, number: int, reply: Reply) -> bool:
        alone = self._alone[number]
        return (reply.token_ids, reply.text, reply.finish_reason) == (
            alone.token_ids,
            alone.text,
            alone.finish_reason,
        )
