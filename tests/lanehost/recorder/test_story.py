from lanehost.recorder.records import Closed, JobArrived, JobEnded, JobSeated
from lanehost.recorder.story import Difference, DrawnAt, JobStory, Story
from ranks.plan import Chunk, Draw, LaneFault, LaneJoin, StepPlan


def arrived(job_id, prompt_ids=(1, 2)):
    return JobArrived(
        at_ns=1, job_id=job_id, label="", prompt_ids=prompt_ids, max_tokens=9, draw=Draw()
    )


def seated(job_id, lane_id):
    return JobSeated(at_ns=1, job_id=job_id, lane_id=lane_id, num_cached_tokens=0)


def ended(job_id, *token_ids):
    return JobEnded(at_ns=1, job_id=job_id, ending="length", token_ids=token_ids)


def joins(step_id, *lanes, leaves=()):
    return StepPlan(
        step_id=step_id,
        epoch=1,
        leaves=leaves,
        joins=tuple(LaneJoin(lane_id=lane, draw=Draw()) for lane in lanes),
        chunks=tuple(Chunk(lane_id=lane, start=0, token_ids=(1,), draws=True) for lane in lanes),
    )


def decodes(step_id, *lanes):
    return StepPlan(step_id=step_id, epoch=1, decodes=lanes)


def test_a_lane_is_its_new_job_s_only_once_a_plan_has_it_join():
    story = Story()
    for note in (arrived("a"), arrived("b"), seated("a", 3)):
        assert story.take(note) is None
    assert story.joined(joins(1, 3))[3].job_id == "a"
    story.take(seated("b", 3))
    assert story.joined(decodes(2, 3))[3].job_id == "a"
    assert story.joined(joins(3, 3, leaves=(3,)))[3].job_id == "b"


def test_lanes_and_jobs_that_the_trail_did_not_tell_of_are_nobody_s():
    story = Story()
    story.take(seated("nobody", 1))
    assert story.joined(joins(1, 1)) == {}
    assert story.take(ended("nobody", 5)) is None
    assert story.take(Closed(at_ns=1)) is None


def test_a_reply_is_what_was_drawn_behind_the_prompt():
    job = JobStory(job_id="a", prompt_ids=(1, 2), draw=Draw())
    job.drawn[2] = DrawnAt(step_id=1, lane_id=0, given=7)
    job.drawn[3] = DrawnAt(step_id=2, lane_id=0, given=LaneFault.NAN)
    assert [job.token_at(position) for position in range(5)] == [1, 2, 7, None, None]
    assert job.reply(2) == [7, None]


def test_a_reply_that_was_not_drawn_like_that_is_named_with_its_step_and_lane():
    story = Story()
    story.take(arrived("a"))
    job = story.job("a")
    job.drawn[2] = DrawnAt(step_id=4, lane_id=1, given=7)
    job.drawn[3] = DrawnAt(step_id=5, lane_id=1, given=8)
    difference = story.take(ended("a", 7, 9))
    assert str(difference) == (
        "step 5, lane 1, request a: token 1 of the reply: recorded 9, got 8 drawn"
    )
    assert story.job("a") is None


def test_a_difference_names_only_what_it_knows():
    difference = Difference(what="the plan", recorded="run", got="refused", step_id=3)
    assert str(difference) == "step 3: the plan: recorded run, got refused"
