"""`lanehost.admin.v1.AdminService` over the engine's side of the prompt cache.

Calls run on the engine's own loop, between its turns, so what they see is one moment's truth.

Law: every call ends with a status; a bug of ours is INTERNAL with its record id; neither that nor
a call that is given up harms a reply.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, TypeVar

import grpc

from lanehost.admin.v1 import admin_pb2 as pb
from lanehost.admin.v1.admin_pb2_grpc import AdminServiceServicer
from lanehost.disk_cache.index import DiskEntry
from lanehost.engine.disk import EngineDisk
from lanehost.fault import record_fault

_Answer = TypeVar("_Answer")
# Any: grpc.aio's types for requests and contexts.
_Method = Callable[[Any, Any, Any], Awaitable[_Answer]]


def _call(method: _Method[_Answer]) -> _Method[_Answer]:
    """Make a method the border of a call: a bug becomes a status."""

    @wraps(method)
    async def guarded(self: "AdminServicer", request: Any, context: Any) -> _Answer:
        try:
            return await method(self, request, context)
        except Exception as bug:
            await context.abort(grpc.StatusCode.INTERNAL, str(record_fault(bug)))
            raise

    return guarded


class AdminServicer(AdminServiceServicer):
    """Answers for one prompt cache."""

    def __init__(self, disk: EngineDisk) -> None:
        """Answer for this one."""
        self._disk = disk

    @_call
    async def GetCacheStats(  # noqa: N802 - gRPC's name
        self, request: pb.GetCacheStatsRequest, context: Any
    ) -> pb.GetCacheStatsResponse:
        """Return the figures."""
        del request, context
        tier, cache = self._disk.tier, self._disk.cache
        counters = tier.counters
        return pb.GetCacheStatsResponse(
            memory_entries=0 if cache is None else cache.num_entries,
            memory_blocks=0 if cache is None else cache.num_kept_blocks,
            disk_entries=tier.index.num_entries,
            disk_bytes=tier.index.num_bytes,
            disk_budget_bytes=tier.index.budget_bytes,
            disk_hits=counters.hits,
            disk_misses=counters.misses.total(),
            disk_saves=counters.saved,
            disk_dropped=counters.dropped.total(),
            disk_faults=counters.faults.total(),
        )

    @_call
    async def FlushCache(  # noqa: N802 - gRPC's name
        self, request: pb.FlushCacheRequest, context: Any
    ) -> pb.FlushCacheResponse:
        """Forget what is kept of prompts."""
        del context
        flushed = self._disk.flush(request.scope if request.HasField("scope") else None)
        return pb.FlushCacheResponse(
            memory_entries=flushed.num_in_memory,
            disk_entries=flushed.num_on_disk,
            in_use=flushed.num_in_use,
        )

    @_call
    async def PruneCache(  # noqa: N802 - gRPC's name
        self, request: pb.PruneCacheRequest, context: Any
    ) -> pb.PruneCacheResponse:
        """Remove what is worth least."""
        del context
        tier = self._disk.tier
        num_entries, num_bytes = tier.prune(request.budget_bytes)
        return pb.PruneCacheResponse(
            disk_entries=num_entries,
            disk_bytes=num_bytes,
            left_bytes=tier.index.num_bytes,
        )

    @_call
    async def VerifyCache(  # noqa: N802 - gRPC's name
        self, request: pb.VerifyCacheRequest, context: Any
    ) -> pb.VerifyCacheResponse:
        """Have all ranks read all entries, one after the other; beside requests."""
        del request, context
        found = pb.VerifyCacheResponse()
        for entry in tuple(self._disk.tier.index):
            # Ranks that are lost answer, too: with False, and the entry is still there.
            is_whole = await self._verify(entry)
            if is_whole:
                found.whole += 1
            elif is_whole is None or self._disk.tier.has(entry):
                found.skipped += 1
            else:
                found.broken += 1
        return found

    async def _verify(self, entry: DiskEntry) -> bool | None:
        """Return whether an entry is whole; None: it cannot be verified now."""
        verdict: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def judge(is_whole: bool) -> None:  # noqa: FBT001 - a callback's one argument
            # Who asked may have given up: that is no reason to harm the engine, which tells us.
            if not verdict.done():
                verdict.set_result(is_whole)

        return await verdict if self._disk.verify(entry, judge) else None
