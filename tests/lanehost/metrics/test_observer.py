"""What the observer makes of what it is told, call by call."""

from dataclasses import replace

from lanehost.engine.observer import EngineObserver
from lanehost.errors import Cancelled, RankGroupLost
from lanehost.job import Failed, Finished, FinishReason, Priority, Timing, Usage
from lanehost.metrics.observer import MetricsObserver
from lanehost.metrics.tally import Tally
from ranks.plan import Chunk, LaneDraft, RefusalKind, StepPlan, StepRefused, StepResult
from tests.support.fake_engine import Clock
from tests.support.jobs import make_job

FOREGROUND, BACKGROUND = Priority.FOREGROUND, Priority.BACKGROUND
CANCELLED = Failed(error=Cancelled("left"))


def observing(scopes=("",)):
    tally, clock = Tally.of(scopes), Clock()
    return tally, clock, MetricsObserver(tally, clock=clock, scopes=scopes)


def job_of(clock, *, scope="", priority=FOREGROUND, **values):
    return replace(make_job(**values), arrived_s=clock.now_s, scope=scope, priority=priority)


def finished(*, cached_tokens=0, completion_tokens=0, queue_s=0.0):
    return Finished(
        reason=FinishReason.LENGTH,
        matched=None,
        usage=Usage(
            prompt_tokens=3, cached_tokens=cached_tokens, completion_tokens=completion_tokens
        ),
        timing=Timing(queue_s=queue_s, prefill_s=0, decode_s=0),
    )


def prompt_step(*lane_ids, step_id=1, epoch=1, draws=True):
    return StepPlan(
        step_id=step_id,
        epoch=epoch,
        chunks=tuple(
            Chunk(lane_id=lane_id, start=0, token_ids=(1, 2, 3), draws=draws)
            for lane_id in lane_ids
        ),
    )


def result_of(plan, *, drawn=None, accepted=None, compute_ns=0):
    if drawn is None:
        drawn = {chunk.lane_id: 7 for chunk in plan.chunks if chunk.draws}
    return StepResult(
        step_id=plan.step_id,
        epoch=plan.epoch,
        drawn=drawn,
        failures={},
        accepted=accepted or {},
        digest=b"",
        compute_ns=compute_ns,
    )


def counted(histogram):
    return [count for _, count in histogram.cumulated()][-1], histogram.total


def test_it_is_a_whole_observer():
    assert {name for name in vars(EngineObserver) if name[0] != "_"} <= set(vars(MetricsObserver))


def test_wait_age_is_the_oldest_s_and_0_when_nobody_waits():
    _, clock, observer = observing()
    first, second = job_of(clock), replace(job_of(clock), arrived_s=clock.now_s + 4)
    assert observer.wait_age_s == {("foreground", ""): 0, ("background", ""): 0}
    observer.job_arrived(first)
    observer.job_arrived(second)
    clock.now_s += 10
    assert observer.wait_age_s["foreground", ""] == 10
    observer.job_seated(first.job_id, 0, 0)
    assert observer.wait_age_s["foreground", ""] == 6
    observer.job_ended(second.job_id, CANCELLED, ())
    assert observer.wait_age_s["foreground", ""] == 0


def test_wait_age_and_who_waits_are_told_by_priority_and_scope():
    _, clock, observer = observing(scopes=("a", "b"))
    observer.job_arrived(job_of(clock, scope="a"))
    observer.job_arrived(job_of(clock, scope="a", priority=BACKGROUND))
    clock.now_s += 2
    observer.job_arrived(job_of(clock, scope="b"))
    clock.now_s += 1
    ages_s = {("foreground", "a"): 3, ("background", "a"): 3, ("foreground", "b"): 1}
    assert observer.wait_age_s == {**ages_s, ("background", "b"): 0}
    assert observer.num_waiting == {**dict.fromkeys(ages_s, 1), ("background", "b"): 0}


def test_who_gave_its_lane_back_waits_since_then_and_not_since_it_arrived():
    tally, clock, observer = observing()
    parked, yielded = job_of(clock), job_of(clock, priority=BACKGROUND)
    for lane_id, job in enumerate((parked, yielded)):
        observer.job_arrived(job)
        observer.job_seated(job.job_id, lane_id, 0)
    clock.now_s += 50
    observer.job_parked(parked.job_id)
    observer.job_yielded(yielded.job_id)
    clock.now_s += 2
    assert observer.wait_age_s == {("foreground", ""): 2, ("background", ""): 2}
    assert (tally.jobs_parked, tally.jobs_yielded) == (1, 1)
    observer.job_seated(parked.job_id, 0, 12)
    assert observer.wait_age_s["foreground", ""] == 0


def test_queue_time_and_cached_tokens_are_of_the_first_lane_alone():
    tally, clock, observer = observing()
    job = job_of(clock)
    observer.job_arrived(job)
    clock.now_s += 3
    observer.job_seated(job.job_id, 0, 2)
    observer.job_parked(job.job_id)
    clock.now_s += 3
    observer.job_seated(job.job_id, 1, 16)
    assert counted(tally.queue[FOREGROUND]) == (1, 3)
    assert tally.cached_tokens == {"": 2}


def test_a_prompt_that_was_kept_already_takes_no_lane_and_is_counted_all_the_same():
    tally, clock, observer = observing()
    job = job_of(clock, max_tokens=0)
    observer.job_arrived(job)
    observer.job_ended(job.job_id, finished(cached_tokens=3, queue_s=1.5), ())
    assert counted(tally.queue[FOREGROUND]) == (1, 1.5)
    assert tally.cached_tokens == {"": 3}
    assert tally.ended["length"] == 1


def test_a_job_that_ended_unseated_by_an_error_has_no_queue_time():
    tally, clock, observer = observing()
    job = job_of(clock)
    observer.job_arrived(job)
    observer.job_ended(job.job_id, CANCELLED, ())
    assert counted(tally.queue[FOREGROUND]) == (0, 0)
    assert tally.ended["Cancelled"] == 1


def test_time_to_the_first_token_is_told_when_it_is_drawn_and_once():
    tally, clock, observer = observing()
    job = job_of(clock)
    observer.job_arrived(job)
    observer.job_seated(job.job_id, 2, 0)
    clock.now_s += 5
    unfinished = prompt_step(2, draws=False)
    observer.step_ended(unfinished, result_of(unfinished))
    assert counted(tally.first_token[FOREGROUND]) == (0, 0)
    for step_id in (2, 3):  # the second time after it had parked
        plan = prompt_step(2, step_id=step_id)
        observer.step_ended(plan, result_of(plan))
        assert counted(tally.first_token[FOREGROUND]) == (1, 5)
        clock.now_s += 5


def test_a_lane_that_failed_or_whose_job_has_ended_has_no_first_token():
    tally, clock, observer = observing()
    failed, ended = job_of(clock), job_of(clock)
    for lane_id, job in enumerate((failed, ended)):
        observer.job_arrived(job)
        observer.job_seated(job.job_id, lane_id, 0)
    observer.job_ended(ended.job_id, CANCELLED, ())
    plan = prompt_step(0, 1)
    observer.step_ended(plan, result_of(plan, drawn={1: 9}))
    assert counted(tally.first_token[FOREGROUND]) == (0, 0)


def test_a_token_for_a_lane_that_was_given_up_meanwhile_is_no_first_token():
    tally, clock, observer = observing()
    job = job_of(clock, priority=BACKGROUND)
    observer.job_arrived(job)
    observer.job_seated(job.job_id, 0, 0)
    observer.job_yielded(job.job_id)
    plan = prompt_step(0)
    observer.step_ended(plan, result_of(plan))
    assert counted(tally.first_token[BACKGROUND]) == (0, 0)
    clock.now_s += 5
    observer.job_seated(job.job_id, 0, 0)
    observer.step_ended(plan, result_of(plan))
    assert counted(tally.first_token[BACKGROUND]) == (1, 5)


def test_time_per_token_is_the_mean_between_the_tokens_of_a_reply():
    tally, clock, observer = observing()
    job = job_of(clock, priority=BACKGROUND)
    observer.job_arrived(job)
    observer.job_seated(job.job_id, 0, 0)
    plan = prompt_step(0)
    observer.step_ended(plan, result_of(plan))
    clock.now_s += 6
    observer.job_ended(job.job_id, finished(), (7, 8, 9, 10))
    assert counted(tally.output_token[BACKGROUND]) == (1, 2)
    assert tally.generated_tokens == {"": 4}


def test_a_reply_of_one_token_has_no_time_per_token():
    tally, clock, observer = observing()
    job = job_of(clock)
    observer.job_arrived(job)
    observer.job_seated(job.job_id, 0, 0)
    plan = prompt_step(0)
    observer.step_ended(plan, result_of(plan))
    observer.job_ended(job.job_id, finished(), (7,))
    assert counted(tally.output_token[FOREGROUND]) == (0, 0)


def test_the_rows_of_a_step_are_counted_once_it_has_run():
    tally, _, observer = observing()
    prompts = prompt_step(0, 1, draws=False)
    plan = replace(
        prompts,
        decodes=(2, 3),
        drafts=(LaneDraft(lane_id=2, token_ids=(4, 5)), LaneDraft(lane_id=3, token_ids=(6,))),
    )
    observer.step_planned(plan)
    assert tally.steps == 0
    observer.step_ended(plan, result_of(plan, accepted={2: (4,)}, compute_ns=2_000_000))
    assert (tally.steps, tally.passes, tally.pass_prompts) == (1, 1, 2)
    assert (tally.chunk_tokens, tally.decode_tokens, tally.draft_tokens) == (6, 2, 3)
    assert tally.accepted_draft_tokens == 1
    assert counted(tally.step_compute) == (1, 0.002)


def test_one_prompt_is_no_pass():
    tally, _, observer = observing()
    plan = prompt_step(0, draws=False)
    observer.step_ended(plan, result_of(plan))
    assert (tally.steps, tally.passes, tally.pass_prompts) == (1, 0, 0)


def test_a_step_that_did_not_run_is_counted_by_kind_and_by_nothing_else():
    tally, _, observer = observing()
    for step_id, kind in enumerate(RefusalKind, 1):
        plan = prompt_step(0, 1, step_id=step_id)
        observer.step_planned(plan)
        observer.step_ended(
            plan, StepRefused(step_id=step_id, epoch=1, kind=kind, reason="asked to")
        )
    assert tally.steps_refused == dict.fromkeys((kind.value for kind in RefusalKind), 1)
    assert (tally.steps, tally.passes, tally.chunk_tokens) == (0, 0, 0)
    observer.lane_alone(0)
    assert tally.lanes_alone == 1


def test_step_age_is_that_of_the_oldest_step_in_flight():
    _, clock, observer = observing()
    observer.job_arrived(job_of(clock))
    assert observer.step_age_s == 0
    first, second = prompt_step(0, step_id=1), prompt_step(0, step_id=2)
    observer.step_planned(first)
    clock.now_s += 3
    observer.step_planned(second)
    clock.now_s += 1
    assert observer.step_age_s == 4
    observer.step_ended(first, result_of(first, drawn={}))
    assert observer.step_age_s == 1
    observer.step_ended(second, result_of(second, drawn={}))
    assert observer.step_age_s == 0


def test_steps_that_were_lost_with_the_ranks_age_no_more():
    _, clock, observer = observing()
    job = job_of(clock)
    observer.job_arrived(job)
    observer.step_planned(prompt_step(0, step_id=1))
    observer.step_planned(prompt_step(0, step_id=2))
    clock.now_s += 9
    observer.group_lost(RankGroupLost("gone", epoch=1, rank=0))
    assert observer.step_age_s == 0
    observer.step_planned(prompt_step(0, step_id=1, epoch=2))
    clock.now_s += 1
    assert observer.step_age_s == 1
    observer.job_ended(job.job_id, CANCELLED, ())
    assert observer.step_age_s == 0


def test_of_jobs_that_have_ended_nothing_is_remembered():
    _, clock, observer = observing()
    for _ in range(100):
        job = job_of(clock)
        observer.job_arrived(job)
        observer.job_seated(job.job_id, 1, 0)
        observer.job_ended(job.job_id, CANCELLED, ())
    assert repr(observer) == "<MetricsObserver 0 jobs, 0 steps>"
    assert len(observer._job_ids) == 1
