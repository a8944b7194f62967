import asyncio

import grpc
import pytest

from lanehost.admin.servicer import AdminServicer
from lanehost.admin.socket import socket_path
from lanehost.admin.v1 import admin_pb2 as pb
from lanehost.admin.v1.admin_pb2_grpc import AdminServiceStub
from lanehost.disk_cache.interface import CheckFile, FileReason
from lanehost.job import Finished
from tests.support.admin_rig import PROMPT, answering
from tests.support.fake_engine import settle_loop
from tests.support.jobs import ending, make_job, read_all


async def ask(folder, method, request):
    async with grpc.aio.insecure_channel(f"unix:{socket_path(folder)}") as channel:
        return await getattr(AdminServiceStub(channel), method)(request)


async def test_the_figures_are_those_of_the_cache(tmp_path):
    async with answering(tmp_path) as rig:
        stats = await ask(tmp_path, "GetCacheStats", pb.GetCacheStatsRequest())
        assert stats.memory_entries == rig.engine.cache.num_entries == 1
        assert (stats.disk_entries, stats.disk_bytes, stats.disk_saves) == (1, 200, 1)
        assert stats.disk_budget_bytes == 10_000


async def test_a_flush_forgets_in_memory_and_on_disk(tmp_path):
    async with answering(tmp_path) as rig:
        flushed = await ask(tmp_path, "FlushCache", pb.FlushCacheRequest())
        assert (flushed.memory_entries, flushed.disk_entries, flushed.in_use) == (1, 1, 0)
        events = await read_all(rig.send(make_job(PROMPT, max_tokens=3, scope="")))
        assert events[-1].usage.cached_tokens == 0


async def test_a_flush_of_a_scope_leaves_the_others(tmp_path):
    async with answering(tmp_path, scopes=("a", "b")) as rig:
        flushed = await ask(tmp_path, "FlushCache", pb.FlushCacheRequest(scope="a"))
        assert (flushed.memory_entries, flushed.disk_entries) == (1, 1)
        assert (rig.engine.cache.num_entries, rig.disk.tier.index.num_entries) == (1, 1)


async def test_a_prune_removes_from_the_disk_what_is_too_much(tmp_path):
    async with answering(tmp_path, scopes=("a", "b")) as rig:
        num_bytes = rig.disk.tier.index.num_bytes
        pruned = await ask(tmp_path, "PruneCache", pb.PruneCacheRequest(budget_bytes=num_bytes - 1))
        assert (pruned.disk_entries, pruned.disk_bytes) == (1, num_bytes // 2)
        assert pruned.left_bytes == rig.disk.tier.index.num_bytes == num_bytes // 2
        # What is in memory stays there.
        assert rig.engine.cache.num_entries == 2


async def test_what_is_whole_is_verified_and_stays(tmp_path):
    async with answering(tmp_path, scopes=("a", "b")) as rig:
        said = await ask(tmp_path, "VerifyCache", pb.VerifyCacheRequest())
        assert (said.whole, said.broken, said.skipped) == (2, 0, 0)
        assert rig.disk.tier.index.num_entries == 2
        assert rig.ranks.files.checked == {}
        assert rig.disk.tier.counters.faults.total() == 0


async def test_what_is_not_whole_is_moved_aside(tmp_path):
    async with answering(tmp_path) as rig:
        rig.ranks.files.fault = lambda work: (
            FileReason.CHECKSUM if isinstance(work, CheckFile) else None
        )
        said = await ask(tmp_path, "VerifyCache", pb.VerifyCacheRequest())
        assert (said.whole, said.broken, said.skipped) == (0, 1, 0)
        assert rig.disk.tier.index.num_entries == 0


async def test_what_ranks_have_no_time_for_is_skipped(tmp_path):
    async with answering(tmp_path) as rig:
        rig.ranks.files.fault = lambda work: (
            FileReason.BUSY if isinstance(work, CheckFile) else None
        )
        said = await ask(tmp_path, "VerifyCache", pb.VerifyCacheRequest())
        assert (said.whole, said.broken, said.skipped) == (0, 0, 1)


async def test_a_request_is_not_computed_cold_because_its_entry_is_being_verified(tmp_path):
    async with answering(tmp_path) as rig:
        rig.engine.cache.clear()
        rig.ranks.files.turns = None
        call = asyncio.create_task(AdminServicer(rig.disk).VerifyCache(None, None))
        await settle_loop()
        reply = asyncio.create_task(read_all(rig.send(make_job(PROMPT, max_tokens=3, scope=""))))
        await settle_loop()
        rig.ranks.files.turns = lambda: 0
        rig.ranks.files.let_all_back()
        assert (await reply)[-1].usage.disk_cached_tokens == 20
        assert (await call).whole == 1


@pytest.mark.parametrize("is_lost", [False, True])
async def test_who_gives_up_a_verify_harms_no_reply(tmp_path, is_lost):
    async with answering(tmp_path, num_epochs=2) as rig:
        rig.ranks.files.turns = None
        servicer = AdminServicer(rig.disk)
        call = asyncio.create_task(servicer.VerifyCache(pb.VerifyCacheRequest(), None))
        await settle_loop()
        call.cancel()
        await settle_loop()
        assert call.cancelled()
        rig.ranks.files.turns = lambda: 0
        if is_lost:
            rig.ranks.lose()
        else:
            rig.ranks.files.let_all_back()
        events = await read_all(rig.send(make_job(PROMPT, max_tokens=3, scope="other")))
        assert isinstance(ending(events), Finished)


async def test_a_bug_of_ours_is_a_status():
    class Context:
        async def abort(self, code, details):
            raise asyncio.CancelledError(code, details)

    with pytest.raises(asyncio.CancelledError) as caught:
        await AdminServicer(None).GetCacheStats(pb.GetCacheStatsRequest(), Context())
    assert caught.value.args[0] is grpc.StatusCode.INTERNAL
