"""Try one cell of the table on a server, and say which of its laws did not hold.

Phases of a start are reached on a server of their own, and so is whatever ends the server; all
others can follow each other on one.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable

from lanehost.bench.workload import random_ids
from lanehost.chaos.ends import ended_badly, relaunched_badly, rest_of, start_failed_badly
from lanehost.chaos.rig import NUM_ASKED, Rig, Setup, rigged, starting
from lanehost.chaos.served import ServedHere
from lanehost.chaos.streams import Ending
from lanehost.chaos.table import START, Cell, Fault, Impossible, Law, Phase, cell
from lanehost.client_errors import ClientError

PATIENCE_S = 180.0
_TRIES = 20
# Longer than a prompt takes, so that the next one has a step of its own.
_APART_S = 0.1
_SIGNALS = {Fault.KILL: signal.SIGKILL, Fault.STOP: signal.SIGSTOP}
_ENDING = (Fault.KILL_MASTER, Fault.TERM)
_POINTS = {
    Phase.LOAD: "load",
    Phase.RENDEZVOUS: "form",
    Phase.WARM_UP: "prefill",
    Phase.IDLE: "now",
    Phase.PREFILL: "prefill",
    Phase.PASS: "pass",
    Phase.DECODE: "decode",
    Phase.DRAIN: "decode",
}
_ERRORS = {
    Law.ONE_CORRUPT: "ReplyCorrupt",
    Law.ONE_ABORTED: "RequestPoisoned",
    Law.ONE_FAILED: "StepFailed",
}


async def try_cell(fault: Fault, phase: Phase, setup: Setup) -> list[str]:
    """Try a cell on a server of its own; returns the laws that were broken.

    Raises:
        ValueError: The cell cannot be.
    """
    check_can_be(fault, phase)
    if phase in START:
        return await _try_start(fault, phase, setup)
    async with rigged(setup) as rig:
        if fault in _ENDING:
            return await _try_end(rig, fault, phase)
        broken = await try_running(rig, fault, phase)
        if phase is Phase.DRAIN:
            return broken + await ended_badly(rig.served, 0)
        return broken + (["not ended with 0"] if await rig.served.end(within_s=PATIENCE_S) else [])


def check_can_be(fault: Fault, phase: Phase) -> None:
    """See that a cell can be.

    Raises:
        ValueError: It cannot; says why.
    """
    found = cell(fault, phase)
    reason = found.reason if isinstance(found, Impossible) else None
    if reason is not None:
        raise ValueError(f"{fault.value} in {phase.value} cannot be: {reason}")


def needs_own_server(fault: Fault, phase: Phase) -> bool:
    """Say whether nothing can follow a cell on the same server."""
    return fault in _ENDING or phase in START or phase is Phase.DRAIN


async def try_running(rig: Rig, fault: Fault, phase: Phase) -> list[str]:
    """Try a cell of a server that runs; it runs on, unless the phase is the drain."""
    law, rank = cell(fault, phase), _victim(rig, fault)
    pids, num_formed = rig.served.rank_pids, _num_formed(rig)
    num_injected = len(rig.served.all_said("fault_injected"))
    begun_s = time.monotonic()
    arm = _armed(rig, fault, phase, rank)
    endings = await _ask_in(rig, phase, arm)
    for one in range(rig.setup.tp):
        rig.orders.withdraw(one)
    if len(rig.served.all_said("fault_injected")) == num_injected:
        return [f"{fault.value} was not done: no step came to {_POINTS[phase]}"]
    if law is Law.NEW_EPOCH and _num_formed(rig) == num_formed:
        await rig.served.wait_until(lambda: _num_formed(rig) > num_formed, within_s=PATIENCE_S)
    broken = _judge(law, endings)
    is_new = _num_formed(rig) > num_formed
    if is_new != (law in (Law.NEW_EPOCH, Law.ONE_ABORTED)):
        broken.append(f"{_num_formed(rig) - num_formed} epochs were formed")
    others = [one for one in pids if one != rank and fault is not Fault.OOM]
    broken += [f"rank {o} was replaced too" for o in others if rig.served.rank_pids[o] != pids[o]]
    if is_new and not any(at_s >= begun_s and not up for at_s, up in rig.health.changes):
        broken.append("health did not dip")
    if phase is not Phase.DRAIN:
        broken += await _serves_on(rig)
    return broken


async def _serves_on(rig: Rig) -> list[str]:
    if not await rig.health.wait_for(is_serving=True, within_s=PATIENCE_S):
        return ["the server does not serve again"]
    ending = await rig.streams.ask(1)
    return [] if ending.is_equal else [f"the next request ended with {ending.error}, unequal"]


def _judge(law: Cell, endings: list[Ending]) -> list[str]:
    broken = []
    wanted = _ERRORS.get(law) if isinstance(law, Law) else None
    failed = [one for one in endings if one.error is not None]
    # Whether its step runs alone is the scheduler's to say.
    is_spared = law is Law.ONE_FAILED and not failed
    if not is_spared and [one.error for one in failed] != ([wanted] if wanted else []):
        broken.append(f"errors: {[one.error for one in failed]}, wanted {wanted}")
    if law is Law.ONE_ABORTED and any(one.number != 0 for one in failed):
        broken.append("another request was aborted than the one that kills")
    unequal = [one.number for one in endings if one.is_equal is False]
    if unequal:
        broken.append(f"requests {unequal} did not get the undisturbed reply")
    return broken


def _victim(rig: Rig, fault: Fault) -> int:
    """The leader for what it alone does; else one after the other."""
    if fault in (Fault.NAN, Fault.SHAPE):
        return 0
    return len(rig.served.all_said("fault_injected")) % rig.setup.tp


def _armed(rig: Rig, fault: Fault, phase: Phase, rank: int) -> Callable[[], None]:
    name = f"poison={rig.poison_token}" if fault is Fault.POISON else fault.value
    ranks = range(rig.setup.tp) if fault is Fault.OOM else (rank,)

    def arm() -> None:
        for one in ranks:
            rig.orders.give(one, name, _POINTS[phase])

    return arm


def _num_formed(rig: Rig) -> int:
    return len(rig.served.all_said("epoch_formed"))


async def _ask_in(rig: Rig, phase: Phase, arm: Callable[[], None]) -> list[Ending]:
    """Have the server be in a phase when what is armed strikes; returns how requests ended."""
    match phase:
        case Phase.IDLE:
            count = 1 + len(rig.served.all_said("fault_injected"))
            arm()
            await rig.served.wait_said("fault_injected", count=count, within_s=PATIENCE_S)
            return []
        case Phase.WARM_UP:
            arm()
            return await _warm(rig)
        case Phase.PREFILL:
            return await _ask_until_taken(rig, arm, apart_s=_APART_S)
        case Phase.PASS:
            return await _ask_until_taken(rig, arm, apart_s=0.0)
        case _:
            return await _ask_and_arm(rig, phase, arm)


async def _ask(rig: Rig, *, apart_s: float = 0.0) -> list[Ending]:
    """Ask all at once, or one after the other without waiting for replies."""

    async def ask(number: int) -> Ending:
        await asyncio.sleep(number * apart_s)
        return await rig.streams.ask(number)

    asking = asyncio.gather(*map(ask, range(NUM_ASKED)))
    return list(await asyncio.wait_for(asking, PATIENCE_S))


async def _ask_until_taken(rig: Rig, arm: Callable[[], None], *, apart_s: float) -> list[Ending]:
    """Ask until a step is what the order waits for.

    Prompts that come at once mostly share a step, those that come apart mostly do not; neither
    is certain.
    """
    arm()
    endings: list[Ending] = []
    for _ in range(_TRIES):
        endings = await _ask(rig, apart_s=apart_s)
        if not any(rig.orders.is_open(rank) for rank in range(rig.setup.tp)):
            break
    return endings


async def _ask_and_arm(rig: Rig, phase: Phase, arm: Callable[[], None]) -> list[Ending]:
    """Strike when all have had a token; in a drain, once the signal has come."""
    begun_s = time.monotonic()
    asking = asyncio.create_task(_ask(rig))
    await rig.streams.wait_token(since_s=begun_s, within_s=PATIENCE_S)
    if phase is Phase.DRAIN:
        rig.served.signal_master(signal.SIGTERM)
        await rig.served.wait_said("stop_asked", within_s=PATIENCE_S)
    arm()
    return await asking


async def _warm(rig: Rig) -> list[Ending]:
    """A request of no tokens: it has no reply that could differ."""
    rng = random.Random(time.monotonic_ns())  # noqa: S311 - no secrets: a prompt never seen
    sent_s, error = time.monotonic(), None
    try:
        prompt = random_ids(rng, 40, rig.vocab_size)
        await asyncio.wait_for(rig.client.generate(token_ids=prompt, max_tokens=0), PATIENCE_S)
    except ClientError as failed:
        error = type(failed).__name__
    now_s = time.monotonic()
    return [Ending(number=-1, sent_s=sent_s, ended_s=now_s, num_tokens=0, error=error)]


async def _try_start(fault: Fault, phase: Phase, setup: Setup) -> list[str]:
    rank = setup.tp - 1
    async with starting(setup) as (served, orders):
        if phase is not Phase.SPAWN:
            act = "note" if fault in _ENDING else fault.value
            orders.give(rank, act, _POINTS[phase])
        async with served:
            await _strike_at_start(served, fault, phase, rank)
            match cell(fault, phase):
                case Law.ALL_GONE:
                    broken = await rest_of(served, patience_s=2.0)
                case Law.ENDS:
                    broken = await ended_badly(served, 0)
                case _:
                    broken = await start_failed_badly(served, rank)
    return broken + await relaunched_badly(setup, served)


async def _strike_at_start(served: ServedHere, fault: Fault, phase: Phase, rank: int) -> None:
    is_spawn = phase is Phase.SPAWN
    event = "rank_spawned" if is_spawn else "fault_injected"
    await served.wait_until(lambda: served.all_said(event, rank=rank), within_s=PATIENCE_S)
    if fault is Fault.KILL_MASTER:
        served.kill_master()
    elif fault is Fault.TERM:
        served.signal_master(signal.SIGTERM)
    elif is_spawn:
        os.kill(served.rank_pids[rank], _SIGNALS[fault])


async def _try_end(rig: Rig, fault: Fault, phase: Phase) -> list[str]:
    """Kill the master, or tell it to end, in a phase of a server that runs."""
    asking: list[asyncio.Task[list[Ending]]] = []

    def strike_when_noted() -> None:
        rig.orders.give(0, "note", _POINTS[phase])

    asking.append(asyncio.create_task(_ask_in(rig, phase, strike_when_noted)))
    noted = await rig.served.wait_said("fault_injected", within_s=PATIENCE_S)
    number = signal.SIGKILL if fault is Fault.KILL_MASTER else signal.SIGTERM
    rig.served.signal_master(number)
    endings = await asyncio.wait_for(asking[0], PATIENCE_S)
    broken = [] if noted else [f"no step came to {_POINTS[phase]}"]
    if fault is Fault.KILL_MASTER:
        broken += await rest_of(rig.served, patience_s=2.0)
    elif phase is Phase.DRAIN:
        broken += await ended_badly(rig.served, 4)
    else:
        broken += _judge(Law.DRAINS, endings) + await ended_badly(rig.served, 0)
    return broken + await relaunched_badly(rig.setup, rig.served)
