"""Whole replies of a quantized model: alone, in company and under pressure, on one rank and two."""

import pytest
from gguf.constants import GGMLQuantizationType

from ranks.plan import Draw
from tests.support.jobs import make_job, token_ids
from tests.support.real_engine import engine_on_ranks, solo_replies
from tests.support.tiny_checkpoints import write_gguf

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(240)]
# Few blocks for four lanes: lanes park, and prompts run in chunks beside those that decode.
GROUP = {"num_lanes": 4, "max_step_tokens": 24, "kv_tokens": 160}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("quantized") / "tiny.gguf"
    write_gguf(path, GGMLQuantizationType.Q4_1)
    return path


def jobs():
    shared = tuple(range(20, 50))
    return [
        make_job(
            (*(shared if n % 3 == 0 else ()), *range(n, 5 * n + 1)),
            max_tokens=6 + 7 * (n % 4),
            draw=Draw(temperature=(0.0, 0.9)[n % 2], seed=n),
        )
        for n in range(9)
    ]


@pytest.mark.parametrize("dtype", ["int8", "float32"])
async def test_greedy_and_seeded_replies_are_those_of_one_alone_on_one_rank_and_two(
    checkpoint, dtype
):
    alone = await solo_replies(checkpoint, jobs(), dtype=dtype)
    assert len({tuple(reply) for reply in alone}) == len(alone)
    for tp, threads in ((1, 3), (2, 1)):
        group = GROUP | {"dtype": dtype, "num_threads": threads}
        if dtype == "float32":
            group["num_threads"] = 1  # what is promised of torch's products
        async with engine_on_ranks(checkpoint, tp=tp, group=group, max_drafts=3) as rig:
            together = [token_ids(events) for events in await rig.run_all(jobs())]
        assert together == alone
