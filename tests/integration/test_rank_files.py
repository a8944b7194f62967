"""Files of real rank processes: what one group wrote another goes on from, token for token."""

import asyncio
import os
import signal
from dataclasses import replace

import pytest
from gguf.constants import GGMLQuantizationType

from lanehost.disk_cache.interface import (
    AdoptFile,
    CheckFile,
    DropFile,
    FileHeader,
    FileReason,
    SaveFile,
    SweepFiles,
)
from lanehost.rank_group.supervisor import running_rank_group, running_rank_groups
from ranks.plan import Draw, StepResult
from tests.support.plan_writer import PlanWriter
from tests.support.rank_facts import group_settings
from tests.support.tiny_checkpoints import write_gguf, write_hf_checkpoint

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(120)]

BLOCK = 16
PROMPT = [(7 * at + at * at) % 90 + 1 for at in range(5 * BLOCK + 3)]
NUM_CACHED = 4 * BLOCK
HEADER = FileHeader(layout="1a" * 32, key="2b" * 32, num_tokens=NUM_CACHED, tokens_digest="3c" * 32)
GREEDY, NOISY = Draw(), Draw(temperature=1.3, seed=11)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model that torch computes, and one that is computed natively."""
    folder = tmp_path_factory.mktemp("models")
    write_hf_checkpoint(folder, "llama")
    write_gguf(folder / "m.gguf", GGMLQuantizationType.Q4_1)
    return {
        "float32": {"model_path": folder, "dtype": "float32"},
        "int8": {"model_path": folder / "m.gguf", "dtype": "int8"},
    }


@pytest.fixture
def native(models):
    return models["int8"]


def settings_of(model, folder, tp, **more):
    return group_settings(
        tp=tp, device="cpu", num_threads=1, kv_tokens=32 * BLOCK, disk_folder=folder,
        **(model | more),
    )  # fmt: skip


def group_of(model, folder, tp):
    return running_rank_group(settings_of(model, folder, tp), on_progress=lambda _: None)


class Files:
    """Works on the files of a group, one after the other."""

    def __init__(self, group):
        self._outcomes = asyncio.Queue()
        self._group = group
        self._last_id = 0
        group.files.tell(self._outcomes.put_nowait)

    async def do(self, kind, **fields):
        self._last_id += 1
        self._group.files.start(kind(order_id=self._last_id, **fields))
        outcome = await self._outcomes.get()
        assert outcome.order_id == self._last_id
        return outcome


async def run(group, plans):
    tokens = []
    for plan in plans:
        group.submit(plan)
        outcome = await group.next_outcome()
        assert isinstance(outcome, StepResult), outcome
        tokens += outcome.drawn.values()
    return tokens


def cold(writer, draw=GREEDY):
    return [writer.plan(prompts={0: PROMPT}, draw=draw)] + [
        writer.plan(decodes=(0,)) for _ in range(12)
    ]


def warm(writer, block_ids, draw=GREEDY):
    """Go on behind blocks that lie elsewhere than a cold run would have them."""
    writer.next_block = max(writer.next_block, *block_ids) + 1
    writer.cached = {1: block_ids}
    first = writer.plan(prompts={1: PROMPT[NUM_CACHED:]}, draw=draw)
    return [first] + [writer.plan(decodes=(1,)) for _ in range(12)]


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
async def test_a_prompt_from_files_gives_the_tokens_of_a_cold_run(models, tmp_path, dtype, tp):
    model = models[dtype]
    writer = PlanWriter(block_size=BLOCK)
    async with group_of(model, tmp_path, tp) as group:
        greedy = await run(group, cold(writer))
        saved = await Files(group).do(
            SaveFile, header=HEADER, block_ids=tuple(writer.tables[0][:4])
        )
        assert (saved.is_done, len(saved.num_bytes)) == (True, tp)
        seeded = await run(group, [writer.plan(leaves=(0,)), *cold(writer, NOISY)])
    block_ids = (9, 3, 7, 5)
    writer = PlanWriter(block_size=BLOCK)
    async with group_of(model, tmp_path, tp) as group:
        files = Files(group)
        for kind, more in ((CheckFile, {}), (AdoptFile, {"block_ids": block_ids})):
            outcome = await files.do(kind, header=HEADER, **more)
            assert (outcome.is_done, outcome.num_bytes) == (True, saved.num_bytes)
        assert await run(group, warm(writer, block_ids)) == greedy
        again = [writer.plan(leaves=(1,)), *warm(writer, block_ids, NOISY)]
        assert await run(group, again) == seeded
    assert greedy != seeded


async def test_what_one_of_two_ranks_has_not_is_a_miss_for_both(native, tmp_path):
    async with group_of(native, tmp_path, 2) as group:
        files = Files(group)
        await files.do(SaveFile, header=HEADER, block_ids=(0, 1, 2, 3))
        (torn,) = tmp_path.rglob("*.r1of2.safetensors")
        torn.write_bytes(torn.read_bytes()[:-1])
        outcome = await files.do(CheckFile, header=HEADER)
        assert (outcome.reason, outcome.rank) == (FileReason.TORN, 1)
        dropped = await files.do(DropFile, name=HEADER.name)
        assert dropped.is_done
        outcome = await files.do(AdoptFile, header=HEADER, block_ids=(4, 5, 6, 7))
        assert (outcome.reason, outcome.rank) == (FileReason.UNCHECKED, 0)
        swept = await files.do(SweepFiles, known=())
        assert swept.is_done
        outcome = await files.do(CheckFile, header=HEADER)
        assert outcome.reason is FileReason.MISSING


async def test_files_outlive_the_epoch_that_wrote_them(native, tmp_path):
    settings = settings_of(native, tmp_path, 2, max_restarts=2)
    async with running_rank_groups(settings, on_progress=lambda _: None) as groups:
        group = await groups.next_backend()
        writer = PlanWriter(block_size=BLOCK)
        expected = await run(group, cold(writer))
        await Files(group).do(SaveFile, header=HEADER, block_ids=tuple(writer.tables[0][:4]))
        pids = [link.pid for link in group._links]

        os.kill(pids[1], signal.SIGKILL)
        await group.lost()
        group = await groups.next_backend()
        files = Files(group)
        assert (await files.do(CheckFile, header=HEADER)).is_done
        assert (await files.do(AdoptFile, header=HEADER, block_ids=(3, 4, 9, 1))).is_done
        again = PlanWriter(block_size=BLOCK, epoch=group.facts.epoch)
        assert await run(group, warm(again, (3, 4, 9, 1))) == expected


async def test_without_a_folder_every_work_is_answered(native):
    async with group_of(native, None, 1) as group:
        outcome = await Files(group).do(CheckFile, header=replace(HEADER, num_tokens=BLOCK))
        assert outcome.reason is FileReason.GONE
