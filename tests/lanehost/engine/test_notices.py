"""What the log says of jobs and steps."""

from structlog.testing import capture_logs

from lanehost.errors import StepFailed
from lanehost.job import Priority
from ranks.plan import Draw
from tests.support.fake_engine import EngineRig, settle_loop
from tests.support.fake_ranks import fake_facts
from tests.support.jobs import ending, make_job, read_all, text_of


def lines(logs, event):
    return [line for line in logs if line["event"] == event]


async def test_one_line_when_a_job_starts_and_one_when_it_ends():
    rig = EngineRig()
    job = make_job(max_tokens=3, label="mine")
    with capture_logs() as logs:
        async with rig.running():
            await read_all(rig.send(job))
    assert [line["event"] for line in logs] == ["job_started", "job_ended", "engine_idle"]
    started, ended, idle = logs
    assert (started["job_id"], started["label"], started["prompt_tokens"]) == (
        job.job_id,
        "mine",
        3,
    )
    assert (ended["ending"], ended["completion_tokens"], ended["lane_id"]) == ("length", 3, 0)
    assert idle["free_blocks"] + idle["kept_blocks"] == idle["num_blocks"]


async def test_idle_is_said_once_for_each_time():
    rig = EngineRig()
    with capture_logs() as logs:
        async with rig.running():
            for _ in range(3):
                await read_all(rig.send(make_job()))
                await settle_loop()
    assert len(lines(logs, "engine_idle")) == 3


async def test_who_gives_way_to_whom_is_said_and_that_it_went_on():
    rig = EngineRig(fake_facts(num_lanes=1, num_blocks=64, max_step_tokens=8))
    quiet = make_job(tuple(range(50)), priority=Priority.BACKGROUND)
    urgent = make_job()
    with capture_logs() as logs:
        async with rig.running():
            stream = rig.send(quiet)
            await settle_loop(10)
            await read_all(rig.send(urgent))
            await read_all(stream)
    (line,) = lines(logs, "job_yielded")
    assert (line["job_id"], line["to_job_id"]) == (quiet.job_id, urgent.job_id)
    assert [line["job_id"] for line in lines(logs, "job_resumed")] == [quiet.job_id]


async def test_a_step_that_failed_is_said_with_who_runs_alone():
    rig = EngineRig(fake_facts(num_blocks=64, max_step_tokens=64))
    rig.ranks.poisoned_seeds = {13}
    jobs = [make_job((n,), draw=Draw(seed=n)) for n in (12, 13, 14)]
    with capture_logs() as logs:
        async with rig.running():
            streams = [rig.send(job) for job in jobs]
            replies = [await read_all(stream) for stream in streams]
    assert isinstance(ending(replies[1]).error, StepFailed)
    assert {line["kind"] for line in lines(logs, "step_refused")} == {"failed", "skipped"}
    said = [
        (line["num_prompts"], line["alone_lane_ids"]) for line in lines(logs, "step_taken_apart")
    ]
    assert said == [(3, [0, 1, 2]), (1, [])]


async def test_no_text_of_a_reply_is_in_a_line():
    rig = EngineRig()
    with capture_logs() as logs:
        async with rig.running():
            said = text_of(await read_all(rig.send(make_job((7, 7, 7), max_tokens=9))))
    assert said
    assert not any(word in repr(logs) for word in said.split())
