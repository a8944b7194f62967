"""A run of faults at random times, under load: server, streams, watcher, injector.

    server starts → every request once, by itself → streams run
    → fault, served again, a random pause, the next fault …
    → streams end → every request once more → what is held is counted → SIGTERM → exit 0

Most faults come at random once every open stream has had a token again: a server rightly
condemns a request that was in flight at three losses without getting further (ADR 20). One in
ten comes at once behind the one before, into whatever the group is doing then. All randomness
is of one seed.
"""

import asyncio
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from lanehost.chaos.health import health_watched
from lanehost.chaos.orders import Orders
from lanehost.chaos.resources import Holding, holding_of, names_left
from lanehost.chaos.seen import ChaosRun, Done, Seen
from lanehost.chaos.served import ServedHere
from lanehost.chaos.streams import Streams, make_asked
from lanehost.chaos.table import Fault
from lanehost.client import AsyncClient
from lanehost.signals import StopSignals

Say = Callable[[str], None]
_SIGNALS = {Fault.KILL: signal.SIGKILL, Fault.STOP: signal.SIGSTOP}
_AT_ONCE = 0.1
# Far beyond any recovery: who waits so long waits for ever.
PATIENCE_S = 180.0
_REPORT_S = 10.0
_SAMPLE_S = 2.0
_ORDER_TAKEN_S = 30.0
_MAX_TOKENS = 192


class Injector:
    """Does one fault after the other."""

    def __init__(
        self,
        run: ChaosRun,
        served: ServedHere,
        *,
        seen: Seen,
        streams: Streams,
        orders: Orders,
        say: Say,
    ) -> None:
        """Do nothing yet; `go` does all."""
        self._run = run
        self._served = served
        self._seen = seen
        self._streams = streams
        self._orders = orders
        self._say = say
        self._is_stopped = False
        self._rng = random.Random(f"{run.seed} faults")  # noqa: S311 - no secrets

    def stop(self) -> None:
        """Do no more faults: what was seen so far is judged."""
        self._is_stopped = True
        self._say("no more faults: judging what was seen so far; once more ends at once")

    async def go(self) -> None:
        """Do faults until the time or the number is reached, or nobody serves any more."""
        until_s = time.monotonic() + self._run.duration_s
        while not self._is_over(until_s):
            if self._seen.done and self._rng.random() < _AT_ONCE:
                await asyncio.sleep(self._rng.uniform(0, 1))
            elif not await self._served_and_paused():
                self._seen.never_served_again = True
                return
            if time.monotonic() < until_s:
                await self._do_one()
        if not await self._served_and_paused():
            self._seen.never_served_again = True

    def _is_over(self, until_s: float) -> bool:
        if self._is_stopped:
            return True
        most = self._run.max_faults
        is_enough = most is not None and len(self._seen.done) >= most
        return is_enough or time.monotonic() >= until_s or self._served.exit_code is not None

    async def _served_and_paused(self) -> bool:
        if not await self._seen.health.wait_for(is_serving=True, within_s=PATIENCE_S):
            return False
        since_s = time.monotonic()
        if not await self._streams.wait_all(since_s=since_s, within_s=PATIENCE_S):
            return False
        await asyncio.sleep(self._rng.uniform(0, self._run.pause_s))
        return True

    async def _do_one(self) -> None:
        fault = self._rng.choice(self._run.faults)
        rank = 0 if fault is Fault.NAN else self._rng.randrange(self._run.tp)
        was_serving = self._seen.health.is_serving
        at_s: float | None = time.monotonic()
        if fault in _SIGNALS:
            pid = self._served.living_rank(rank)
            if pid is None:
                return
            os.kill(pid, _SIGNALS[fault])
        else:
            at_s = await self._order(fault, rank)
        if at_s is not None:
            done = Done(at_s=at_s, fault=fault, rank=rank, was_serving=was_serving)
            self._seen.done.append(done)

    async def _order(self, fault: Fault, rank: int) -> float | None:
        """Have a rank fail in its next step; says when it did, None when it did not."""
        ranks = range(self._run.tp) if fault is Fault.OOM else (rank,)
        before = len(self._served.all_said("fault_injected"))
        for one in ranks:
            self._orders.give(one, fault.value, "step")
        count = before + len(ranks)
        if await self._served.wait_said("fault_injected", count=count, within_s=_ORDER_TAKEN_S):
            return self._served.all_said("fault_injected")[before].at_s
        for one in ranks:
            self._orders.withdraw(one)
        taken = self._served.all_said("fault_injected")[before:]
        return taken[0].at_s if taken else None


async def run_chaos(run: ChaosRun, say: Say) -> Seen:
    """Do it all; returns what was seen.

    Raises:
        StartupFailed: The server did not start.
        ClientError: It did not answer before any fault.
    """
    seen = Seen(started_s=time.monotonic())
    stopping = _Stopping()
    async with AsyncExitStack() as stack:
        stack.enter_context(StopSignals(on_first=stopping.first, on_second=stopping.cancel))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="lanehost-chaos-"))
        orders = Orders(Path(folder))
        is_ordered = any(fault not in _SIGNALS for fault in run.faults)
        environment = orders.environment if is_ordered else {}
        served = await stack.enter_async_context(
            ServedHere(run.serve_args, environment=environment)
        )
        seen.said = served.said
        await served.wait_ready()
        seen.health = await stack.enter_async_context(health_watched(served.grpc_address))
        client = await stack.enter_async_context(AsyncClient(served.grpc_address))
        card = await client.model()
        tokens = min(_MAX_TOKENS, card.context_length)
        rng = random.Random(f"{run.seed} requests")  # noqa: S311 - no secrets
        asked = make_asked(rng, run.num_asked, vocab_size=card.vocab_size, tokens=tokens)
        streams = Streams(client, asked)
        seen.endings, seen.arrivals_s = streams.endings, streams.arrivals_s
        say(f"{card.name} on {card.world_size} ranks: taking {len(asked)} undisturbed replies")
        await streams.take_undisturbed()
        await seen.health.wait_for(is_serving=True, within_s=PATIENCE_S)
        seen.before = holding(served)
        injector = Injector(run, served, seen=seen, streams=streams, orders=orders, say=say)
        stopping.injector = injector
        await _under_load(run, injector, served=served, seen=seen, streams=streams, say=say)
        await _look_back(served, seen, streams)
    return seen


class _Stopping:
    """What signals do: before the load there is nothing to judge yet."""

    def __init__(self) -> None:
        main = asyncio.current_task()
        assert main is not None
        self._main = main
        self.injector: Injector | None = None

    def first(self) -> None:
        if self.injector is None:
            self.cancel()
        else:
            self.injector.stop()

    def cancel(self) -> None:
        self._main.cancel()


async def _under_load(
    run: ChaosRun,
    injector: Injector,
    *,
    served: ServedHere,
    seen: Seen,
    streams: Streams,
    say: Say,
) -> None:
    seen.loaded_s = time.monotonic()
    load = asyncio.create_task(streams.run(run.num_streams))
    looking = [
        asyncio.create_task(_report(run, seen, streams, say)),
        asyncio.create_task(_sample(served, seen)),
    ]
    try:
        await injector.go()
        streams.stop()
        await asyncio.wait({load}, timeout=PATIENCE_S)
        seen.num_never_ended = streams.num_open
    finally:
        for task in (load, *looking):
            task.cancel()
        await asyncio.wait({load, *looking})
    seen.num_sent = streams.num_sent
    seen.ended_s = time.monotonic()


async def _look_back(served: ServedHere, seen: Seen, streams: Streams) -> None:
    """Ask everything once more, count what is held, and end the server."""
    if seen.never_served_again or served.exit_code is not None:
        return
    num_before = len(streams.endings)
    for number in range(streams.num_asked):
        await streams.ask(number)
    after = streams.endings[num_before:]
    seen.num_asked_after, seen.num_equal_after = len(after), sum(bool(e.is_equal) for e in after)
    seen.num_sent = streams.num_sent
    seen.after = holding(served)
    pids = [served.pid, *served.rank_pids.values()]
    seen.exit_code = await served.end(within_s=PATIENCE_S)
    seen.pids_left = [pid for pid in pids if holding_of({"": pid}).usages]
    assert seen.before is not None
    names = [one.shared_names for one in (seen.before, *(held for _, held in seen.samples))]
    seen.shared_left = names_left(frozenset[str]().union(*names))


def holding(served: ServedHere) -> Holding:
    """What the server's processes hold now."""
    ranks = {f"rank {rank}": pid for rank, pid in served.rank_pids.items()}
    return holding_of({"master": served.pid, **ranks})


async def _report(run: ChaosRun, seen: Seen, streams: Streams, say: Say) -> None:
    while True:
        await asyncio.sleep(_REPORT_S)
        passed_s = time.monotonic() - seen.loaded_s
        errors = Counter(one.error for one in streams.endings if one.error is not None)
        say(
            f"{passed_s:.0f} of {run.duration_s:.0f} s: {len(seen.done)} faults, "
            f"{len(streams.endings)} requests ended, "
            f"{sum(one.is_equal is True for one in streams.endings)} equal"
            + "".join(f", {num} {error}" for error, num in errors.items())
        )


async def _sample(served: ServedHere, seen: Seen) -> None:
    while True:
        seen.samples.append((time.monotonic(), holding(served)))
        await asyncio.sleep(_SAMPLE_S)
