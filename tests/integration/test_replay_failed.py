"""A trail of real ranks whose steps failed, run again on ranks that do not fail."""

import pytest

from lanehost.engine.backend import Epochs, OnlyEpoch
from lanehost.rank_group.supervisor import RANK_COMMAND, running_rank_group
from lanehost.recorder.alone import find_request, replay_alone
from lanehost.recorder.check import check_trail
from lanehost.recorder.recorder import RecordingBackend, recording
from lanehost.recorder.records import StepTurnedDown
from lanehost.recorder.replay import replay_on
from lanehost.recorder.trail import Trail
from lanehost.settings import RecordSettings
from ranks.plan import Draw, RefusalKind
from tests.support.failing_rank import failing_rank_command
from tests.support.fake_engine import EngineRig
from tests.support.jobs import make_job
from tests.support.rank_facts import group_settings
from tests.support.tiny_checkpoints import write_hf_checkpoint
from tests.support.trails import KEY, Ticks, header, run_jobs

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(120)]
POISON = 300
FAILS = f"fail-prompts-above=1,fail-drafts,fail-token={POISON}"


def jobs():
    """Some begin alike, some repeat themselves, one only warms, one can never run."""
    loop = (5, 9, 5, 9, 5, 9, 5, 9)
    prompts = [tuple(range(20, 40)), tuple(range(20, 38)), loop, (1, 2, POISON), (7, 8), loop[:5]]
    return [
        make_job(
            prompt,
            max_tokens=0 if number == 4 else 12,
            draw=Draw(temperature=number % 2 * 0.8, seed=number),
            job_id=f"job-{number}",
        )
        for number, prompt in enumerate(prompts)
    ]


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    write_hf_checkpoint(folder, "llama")
    return folder


def group_of(model_path, command, *, tp):
    settings = group_settings(
        model_path=model_path, tp=tp, dtype="float32", num_threads=1, num_lanes=4, kv_tokens=512
    )
    return running_rank_group(settings, on_progress=lambda _: None, rank_command=command)


def epochs_of(group):
    return Epochs(first=group, later=OnlyEpoch(group.lost))


async def record(model_path, folder):
    """Serve all jobs at once on ranks that fail; returns their replies."""
    async with group_of(model_path, failing_rank_command(FAILS), tp=2) as group:
        about = header(facts=group.facts)
        settings = RecordSettings(folder=folder, keeps_prompts=True)
        async with recording(settings, about, redaction_key=KEY, clock_ns=Ticks()) as recorder:
            rig = EngineRig(
                group.facts,
                observer=recorder,
                max_drafts=4,
                wrap=lambda _: RecordingBackend(group, recorder),
            )
            return await run_jobs(rig, jobs())


async def test_a_trail_of_ranks_that_failed_replays_equal_on_ranks_that_do_not(
    small_model, tmp_path
):
    replies = await record(small_model, tmp_path)
    assert [len(reply) for reply in replies][:4] == [12, 12, 12, 0]
    refused = [note for note in Trail(tmp_path) if isinstance(note, StepTurnedDown)]
    kinds = {note.refusal for note in refused}
    assert kinds == {RefusalKind.FAILED, RefusalKind.SKIPPED}
    trail = Trail(tmp_path)
    told = []
    checked = check_trail(trail.header, trail, on_step=told.append)
    assert (checked.difference, checked.num_left_out) == (None, len(refused))
    for tp in (1, 2):
        async with group_of(small_model, RANK_COMMAND, tp=tp) as group:
            ranks = epochs_of(group)
            assert await replay_on(ranks, trail.header, trail, on_step=told.append) == checked
    async with group_of(small_model, RANK_COMMAND, tp=1) as group:
        job = find_request(trail.header, trail, "job-2")
        alone = await replay_alone(group, trail.header, job, on_step=told.append)
    assert (alone.difference, len(job.drawn)) == (None, 12)
