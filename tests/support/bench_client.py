"""For benches: replies with made-up times, a clock that jumps, a client with a script."""

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

import grpc

from lanehost.bench.reply_times import Arrival, ReplyTimes
from lanehost.client_codec import Delta, Reply
from lanehost.client_errors import ServerBusy, Status
from lanehost.job import Timing, Usage

CACHED_TOKENS = 3
GAP_S = 0.5


def reply(
    due_s: float = 0.0,
    arrivals: list[float | tuple[float, int]] | None = None,
    *,
    ended_s: float | None = None,
    **rest,
) -> ReplyTimes:
    """A reply whose events came at these times, each with one token or as many as said."""
    pairs = [one if isinstance(one, tuple) else (one, 1) for one in arrivals or []]
    last_s = pairs[-1][0] if pairs else due_s
    return ReplyTimes(
        due_s=due_s,
        sent_s=due_s,
        ended_s=last_s if ended_s is None else ended_s,
        arrivals=tuple(Arrival(at_s=at_s, num_tokens=count) for at_s, count in pairs),
        **rest,
    )


class JumpingClock:
    """Stands still, but for what waits and what is told to pass."""

    def __init__(self) -> None:
        self._now_s = 100.0

    def now_s(self) -> float:
        return self._now_s

    async def wait_until(self, at_s: float) -> None:
        self._now_s = max(self._now_s, at_s)
        await asyncio.sleep(0)

    def pass_s(self, seconds: float) -> None:
        self._now_s += seconds


class ScriptedClient:
    """Gives each request as many tokens as it asks for, `GAP_S` of the clock before each.

    `fails` names requests, from 0, that the server is too busy for. With `holds`, no reply
    begins before that many are open.
    """

    def __init__(
        self,
        clock: JumpingClock,
        *,
        fails: Callable[[int], bool] = lambda _: False,
        holds: int = 0,
    ) -> None:
        self.clock = clock
        self.fails = fails
        self.holds = holds
        self.prompts: list[tuple[int, ...]] = []
        self.lengths: list[int] = []
        self.num_open = 0
        self.most_open = 0
        self.enough = asyncio.Event()
        self.opened = asyncio.Semaphore(0)

    def stream(self, *, token_ids, max_tokens, ignore_eos) -> "_Stream":
        assert ignore_eos, "a reply must have the length that was asked for"
        number = len(self.prompts)
        self.prompts.append(tuple(token_ids))
        self.lengths.append(max_tokens)
        return _Stream(self, number, len(token_ids), max_tokens)


class _Stream:
    def __init__(self, client: ScriptedClient, number: int, prompt: int, length: int) -> None:
        self._client = client
        self._number = number
        self._prompt = prompt
        self._length = length

    async def __aenter__(self) -> Self:
        self._client.num_open += 1
        self._client.opened.release()
        self._client.most_open = max(self._client.most_open, self._client.num_open)
        if self._client.num_open >= self._client.holds:
            self._client.enough.set()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._client.num_open -= 1

    async def __aiter__(self) -> AsyncIterator[Delta]:
        await self._client.enough.wait()
        if self._client.fails(self._number):
            raise ServerBusy(Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED, message="full"))
        for _ in range(self._length):
            await asyncio.sleep(0)
            self._client.clock.pass_s(GAP_S)
            yield Delta(token_ids=(1,), text="a")
        yield Delta(token_ids=(), text="b")

    @property
    def reply(self) -> Reply:
        return Reply(
            text="",
            token_ids=(),
            finish_reason="length",
            matched=None,
            usage=Usage(
                prompt_tokens=self._prompt,
                cached_tokens=CACHED_TOKENS,
                completion_tokens=self._length,
            ),
            timing=Timing(queue_s=0.0, prefill_s=0.0, decode_s=0.0),
            request_id="",
            seed=0,
        )
