"""The four ways to load a server: who asks what, when, and how much.

Law: what warms up is not counted, and shares no prompt with what is.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from random import Random

from lanehost.bench.load import Clock, Load, LongRound
from lanehost.bench.measured import Goals
from lanehost.bench.reply_times import ReplyTimes
from lanehost.bench.workload import Ask, Lengths, make_asks, poisson_arrivals, random_ids
from lanehost.client import AsyncClient
from lanehost.client_errors import ClientError


class Scenario(Enum):
    """How a server is loaded.

    CLOSED: streams that each ask again as soon as their reply has ended. POISSON: requests
    that arrive by chance, whether or not others have ended. SHARED_PREFIX: as CLOSED, with
    one system prompt before every prompt. LONG_PROMPT: a long prompt comes while streams
    are running.
    """

    CLOSED = "closed"
    POISSON = "poisson"
    SHARED_PREFIX = "shared-prefix"
    LONG_PROMPT = "long-prompt"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeBench:
    """One run against a server.

    `num_requests` counts long prompts in LONG_PROMPT. `rate` is of POISSON alone,
    `num_streams` of the others; `prefix_tokens` and `long_tokens` are of theirs.
    """

    scenario: Scenario
    lengths: Lengths
    goals: Goals
    num_requests: int
    num_warmup: int
    seed: int
    num_streams: int | None = None
    rate: float | None = None
    prefix_tokens: int = 0
    long_tokens: int = 0

    @property
    def num_sent(self) -> int:
        """Requests that are sent and counted, long prompts and the streams beside them too."""
        if self.scenario is Scenario.LONG_PROMPT:
            return self.num_requests * (1 + (self.num_streams or 0))
        return self.num_requests

    @property
    def most_tokens(self) -> int:
        """Positions that the longest sequence takes."""
        usual = self.prefix_tokens + max(self.lengths.prompt) + max(self.lengths.reply)
        return max(usual, self.long_tokens + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What came of a run; `rounds` are of LONG_PROMPT alone, `replies` never hold its long ones."""

    replies: tuple[ReplyTimes, ...]
    rounds: tuple[LongRound, ...] = ()
    first_error: ClientError | None = None


async def run_bench(
    bench: ServeBench,
    client: AsyncClient,
    clock: Clock,
    *,
    vocab_size: int,
    on_counted: Callable[[ReplyTimes], None],
) -> Served:
    """Warm the server up, and run; `on_counted` hears of each counted reply as it ends."""
    warm = Load(client, clock, lambda _: None)
    asks = make_asks(bench.lengths, vocab_size=vocab_size, seed=f"{bench.seed} warm-up")
    await warm.closed(islice(asks, bench.num_warmup), num_streams=bench.num_streams or 1)
    runner = _Runner(bench, Load(client, clock, on_counted), vocab_size)
    return await runner.run()


class _Runner:
    """Runs the counted part of one scenario."""

    def __init__(self, bench: ServeBench, load: Load, vocab_size: int) -> None:
        self._bench = bench
        self._load = load
        self._vocab_size = vocab_size

    async def run(self) -> Served:
        if self._bench.scenario is Scenario.LONG_PROMPT:
            return await self._long_prompts()
        replies = await (self._open() if self._bench.rate is not None else self._closed())
        return Served(replies=tuple(replies), first_error=self._load.first_error)

    async def _closed(self) -> list[ReplyTimes]:
        assert self._bench.num_streams is not None
        asks = islice(self._asks(), self._bench.num_requests)
        return await self._load.closed(asks, num_streams=self._bench.num_streams)

    async def _open(self) -> list[ReplyTimes]:
        assert self._bench.rate is not None
        arrivals_s = poisson_arrivals(
            self._bench.rate, count=self._bench.num_requests, seed=f"{self._bench.seed} arrivals"
        )
        return await self._load.open(self._asks(), arrivals_s)

    async def _long_prompts(self) -> Served:
        asks, rng = self._asks(), self._rng("long prompts")
        rounds = []
        for _ in range(self._bench.num_requests):
            long_ids = random_ids(rng, self._bench.long_tokens, self._vocab_size)
            running = list(islice(asks, self._bench.num_streams))
            long = Ask(token_ids=long_ids, max_tokens=1)
            rounds.append(await self._load.long_round(running, long))
        return Served(
            replies=tuple(reply for one in rounds for reply in one.running),
            rounds=tuple(rounds),
            first_error=self._load.first_error,
        )

    def _asks(self) -> Iterator[Ask]:
        prefix = random_ids(self._rng("prefix"), self._bench.prefix_tokens, self._vocab_size)
        return make_asks(
            self._bench.lengths,
            vocab_size=self._vocab_size,
            seed=f"{self._bench.seed} requests",
            prefix=prefix,
        )

    def _rng(self, use: str) -> Random:
        return Random(f"{self._bench.seed} {use}")  # noqa: S311 - no secrets
