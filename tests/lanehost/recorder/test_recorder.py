import asyncio
import inspect
from dataclasses import replace

import pytest
import structlog

from lanehost.engine.backend import Backend
from lanehost.engine.observer import EngineObserver
from lanehost.errors import RankGroupLost
from lanehost.job import Failed, Priority
from lanehost.recorder.recorder import Recorder, RecordingBackend
from lanehost.recorder.records import (
    Closed,
    Cut,
    GroupWasLost,
    JobArrived,
    JobEnded,
    JobSeated,
    StepReturned,
    StepSubmitted,
    StepTurnedDown,
)
from lanehost.recorder.trail import Trail
from lanehost.recorder.writer import WriterLimits
from ranks.plan import RefusalKind, StepPlan, StepRefused, StepResult
from tests.support.fake_engine import EngineRig
from tests.support.fake_ranks import fake_facts
from tests.support.jobs import make_job
from tests.support.trails import (
    FACTS,
    Ticks,
    first_file,
    mixed_jobs,
    notes_of,
    run_jobs,
    run_recorded,
)


class Notebook:
    """Stands for the writer."""

    def __init__(self):
        self.is_recording = True
        self.notes = []
        self.stopped = []

    def put(self, note, *, weight):
        self.notes.append(note)

    def stop(self, reason):
        self.is_recording = False
        self.stopped.append(reason)


class FullDisk(Notebook):
    """Fails where a writer never should."""

    def put(self, note, *, weight):
        raise RuntimeError("on purpose")


def members(protocol):
    return {name: vars(protocol)[name] for name in vars(protocol) if not name.startswith("_")}


class Echo:
    """Answers whatever the protocol has, and remembers what it was asked."""

    PLAN = StepPlan(step_id=1, epoch=1)
    RESULT = StepResult(step_id=1, epoch=1, drawn={}, failures={}, digest=b"")

    def __init__(self):
        self.asked = []
        self.answers = {name: object() for name in members(Backend)}
        self.answers["next_outcome"] = self.RESULT
        self.answers["facts"] = FACTS

    def __getattr__(self, name):
        member = members(Backend)[name]
        if isinstance(member, property):
            self.asked.append((name, ()))
            return self.answers[name]

        def call(*args):
            self.asked.append((name, args))
            return self.answers[name]

        async def call_async(*args):
            return call(*args)

        return call_async if inspect.iscoroutinefunction(member) else call


@pytest.mark.parametrize("name", sorted(members(Backend)))
async def test_every_member_of_a_backend_is_forwarded_with_its_arguments_and_answer(name):
    member, echo = members(Backend)[name], Echo()
    backend = RecordingBackend(echo, Recorder(Notebook(), clock_ns=Ticks()))
    args = ()
    if isinstance(member, property):
        answer = getattr(backend, name)
    else:
        names = list(inspect.signature(member).parameters)[1:]
        args = tuple(echo.PLAN if one == "plan" else object() for one in names)
        answer = getattr(backend, name)(*args)
        answer = await answer if inspect.isawaitable(answer) else answer
        if inspect.signature(member).return_annotation is None:
            answer = echo.answers[name]
    if name == "images":  # a wrapper itself: test_images.py
        echo.asked.remove(("facts", ()))
        answer = answer._inner
    assert echo.asked == [(name, args)]
    assert answer is echo.answers[name]


def test_the_recorder_is_a_whole_observer():
    for name, member in members(EngineObserver).items():
        mine = inspect.signature(getattr(Recorder, name))
        assert mine.parameters.keys() == inspect.signature(member).parameters.keys()


async def test_recorded_and_unrecorded_replies_are_equal(tmp_path):
    plain = await run_jobs(EngineRig(FACTS, max_drafts=4), mixed_jobs())
    for keeps_prompts in (True, False):
        folder = tmp_path / str(keeps_prompts)
        folder.mkdir()
        assert await run_recorded(folder, keeps_prompts=keeps_prompts) == plain
        assert isinstance(notes_of(folder)[-1], Closed)


async def test_the_trail_tells_of_every_job_and_every_step(tmp_path):
    replies = await run_recorded(tmp_path)
    notes = notes_of(tmp_path)

    def of(kind):
        return [note for note in notes if isinstance(note, kind)]

    jobs = mixed_jobs()
    assert [note.prompt_ids for note in of(JobArrived)] == [job.prompt_ids for job in jobs]
    assert {note.job_id for note in of(JobEnded)} == {job.job_id for job in jobs}
    ended = {note.job_id: note for note in of(JobEnded)}
    for job, reply in zip(jobs, replies, strict=True):
        if reply:
            assert list(ended[job.job_id].token_ids) == reply
    assert "Cancelled" in {note.ending for note in of(JobEnded)}
    assert any(note.num_cached_tokens for note in of(JobSeated))
    steps = [note.plan.step_id for note in of(StepSubmitted)]
    assert steps == [note.step_id for note in of(StepReturned)] == list(range(1, len(steps) + 1))
    assert any(any(dict(note.accepted).values()) for note in of(StepReturned))
    times = [note.at_ns for note in notes]
    assert times == sorted(times)


async def test_without_prompts_no_token_id_of_one_is_in_the_file(tmp_path):
    secret = tuple(range(200, 240))
    jobs = [replace(job, prompt_ids=secret) for job in mixed_jobs(2)]
    for keeps_prompts in (True, False):
        folder = tmp_path / str(keeps_prompts)
        folder.mkdir()
        facts = fake_facts(num_blocks=64)
        await run_recorded(folder, jobs=jobs, keeps_prompts=keeps_prompts, facts=facts)
        packed = b"".join(b"\xcc" + bytes([one]) for one in secret[:10])
        assert (packed in first_file(folder).read_bytes()) is keeps_prompts


async def test_a_lost_group_is_the_last_of_the_steps(tmp_path):
    def lose(rig):
        rig.ranks.lost_at_step = 4

    await run_recorded(tmp_path, change=lose)
    notes = notes_of(tmp_path)
    (lost,) = (note for note in notes if isinstance(note, GroupWasLost))
    assert (lost.rank, lost.reason) == (0, "rank 0 is gone")
    after = notes[notes.index(lost) :]
    assert not any(isinstance(note, StepSubmitted | StepReturned) for note in after)
    assert {note.ending for note in after if isinstance(note, JobEnded)} == {"RankGroupLost"}


async def test_a_refused_step_is_noted(tmp_path):
    def refuse(rig):
        rig.ranks.refused_at_step = 3

    await run_recorded(tmp_path, change=refuse)
    (refused, *_) = (note for note in notes_of(tmp_path) if isinstance(note, StepTurnedDown))
    assert (refused.step_id, refused.reason) == (3, "asked to")


def test_a_plan_that_the_ranks_did_not_take_is_not_noted():
    class Gone(Echo):
        def submit(self, plan):
            raise RankGroupLost("gone", epoch=1, rank=None)

    notebook = Notebook()
    with pytest.raises(RankGroupLost):
        RecordingBackend(Gone(), Recorder(notebook, clock_ns=Ticks())).submit(Echo.PLAN)
    assert notebook.notes == []


async def test_a_fault_of_the_recorder_harms_no_reply(tmp_path):
    notebook = FullDisk()
    recorder = Recorder(notebook, clock_ns=Ticks())
    plain = await run_jobs(EngineRig(FACTS), mixed_jobs())
    with structlog.testing.capture_logs() as logs:
        rig = EngineRig(
            FACTS, observer=recorder, wrap=lambda ranks: RecordingBackend(ranks, recorder)
        )
        assert await run_jobs(rig, mixed_jobs()) == plain
    assert len(notebook.stopped) == 1
    assert [log["event"] for log in logs].count("internal_fault") == 1


async def test_a_recording_that_stops_in_mid_run_harms_no_reply(tmp_path):
    plain = await run_jobs(EngineRig(FACTS, max_drafts=4), mixed_jobs())
    limits = WriterLimits(max_pending_weight=200)
    assert await run_recorded(tmp_path, limits=limits) == plain
    assert isinstance(list(Trail(tmp_path))[-1], Cut)


def test_a_job_is_noted_with_its_scope_and_priority():
    notebook = Notebook()
    job = make_job((1, 2), scope="ops", priority=Priority.BACKGROUND, job_id="j", max_tokens=0)
    Recorder(notebook, clock_ns=Ticks()).job_arrived(job)
    (note,) = notebook.notes
    assert (note.scope, note.priority, note.max_tokens) == ("ops", Priority.BACKGROUND, 0)


async def test_a_refusal_and_a_failure_are_noted_as_they_came():
    notebook = Notebook()
    recorder = Recorder(notebook, clock_ns=Ticks())
    failed = StepRefused(step_id=1, epoch=2, kind=RefusalKind.FAILED, reason="why")
    recorder.step_returned(failed)
    recorder.job_ended("j", Failed(error=RankGroupLost("x", epoch=1, rank=None)), [4, 5])
    assert notebook.notes == [
        StepTurnedDown(at_ns=1, step_id=1, epoch=2, refusal=RefusalKind.FAILED, reason="why"),
        JobEnded(at_ns=2, job_id="j", ending="RankGroupLost", token_ids=(4, 5)),
    ]
    await asyncio.sleep(0)
