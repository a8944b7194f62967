import asyncio

import pytest

from lanehost.admin import client
from tests.support.admin_rig import answering


async def test_it_asks_the_server_of_the_folder(tmp_path):
    async with answering(tmp_path, scopes=("a", "b")):
        stats = await asyncio.to_thread(client.get_stats, tmp_path)
        assert stats.disk_entries == 2
        verified = await asyncio.to_thread(client.verify, tmp_path)
        assert verified.whole == 2
        one = await asyncio.to_thread(client.flush, tmp_path, "a")
        assert one.disk_entries == 1
        pruned = await asyncio.to_thread(client.prune, tmp_path, 0)
        assert (pruned.disk_entries, pruned.left_bytes) == (1, 0)
        rest = await asyncio.to_thread(client.flush, tmp_path, None)
        assert rest.disk_entries == 0


def test_without_a_server_it_says_so(tmp_path):
    with pytest.raises(client.NoAnswer, match="UNAVAILABLE"):
        client.get_stats(tmp_path)
