"""How a server ended: its exit, what is left of it, and whether its ports serve again."""

import asyncio
import re
import time

from lanehost.chaos.resources import usage_of
from lanehost.chaos.rig import Setup
from lanehost.chaos.served import ServedHere
from lanehost.client import AsyncClient
from lanehost.errors import StartupFailed

_END_S = 300.0
_LOOK_S = 0.02
_CANNOT_START = 1


async def rest_of(served: ServedHere, *, patience_s: float) -> list[str]:
    """Wait for the end of a master; says which ranks are left so long after it."""
    await asyncio.wait_for(served.exited(), _END_S)
    until_s = time.monotonic() + patience_s
    while left := [rank for rank, pid in served.rank_pids.items() if usage_of(pid) is not None]:
        if time.monotonic() > until_s:
            return [f"ranks {left} are left {patience_s:g} s after the master"]
        await asyncio.sleep(_LOOK_S)
    return []


async def ended_badly(served: ServedHere, code: int) -> list[str]:
    """Wait for the end; says what is wrong with it."""
    broken = await rest_of(served, patience_s=2.0)
    if served.exit_code != code:
        broken.append(f"it exited with {served.exit_code}, not {code}: {served.last_words()}")
    return broken


async def start_failed_badly(served: ServedHere, rank: int) -> list[str]:
    """Wait for the end of a start that had to fail; says what is wrong with it."""
    broken = await ended_badly(served, _CANNOT_START)
    # Another may be named with it: who loads waits for all.
    if re.search(rf"rank (\d+, )*{rank}\b", served.last_words()) is None:
        broken.append(f"the last words do not name rank {rank}: {served.last_words()}")
    return broken


async def relaunched_badly(setup: Setup, served: ServedHere) -> list[str]:
    """Start a server on the same ports, and ask it; says what is wrong."""
    ports = [
        (address.rpartition(":")[2] if address else "0")
        for address in (served.grpc_address, served.http_address)
    ]
    args = (*setup.serve_args, "--port", ports[0], "--http-port", ports[1])
    async with ServedHere(args, environment={}) as again:
        try:
            await again.wait_ready()
        except StartupFailed as failed:
            return [f"it does not start again: {failed}"]
        async with AsyncClient(again.grpc_address) as client:
            reply = await client.generate(token_ids=(1, 2, 3), max_tokens=2, ignore_eos=True)
        if not reply.token_ids:
            return ["started again, it gives no tokens"]
        return await _leave(again)


async def _leave(again: ServedHere) -> list[str]:
    code = await again.end(within_s=_END_S)
    return [] if code == 0 else [f"started again, it exits with {code}"]
