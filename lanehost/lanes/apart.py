"""Take a step apart that the ranks could not run.

A step fails whole: nothing of it has run (ADR 11). Who may be the cause runs alone next,
so that one request's failure is its own:

    the step had                      next
    one lane, and no draft            that lane's job fails
    prompts (a pass, or one prompt)   each of them alone, a chunk or a staged pass at a time
    drafts                            without these drafts; a draft fails nobody
    decodes                           each of them alone

Law: each failure leaves less to be tried, so taking apart ends.
"""

from dataclasses import dataclass

from lanehost.lanes.lane import Lane
from lanehost.lanes.table import LaneTable
from ranks.plan import StepPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """How the lanes of a failed step go on: who runs alone next, and whose job fails, if any."""

    alone: tuple[Lane, ...] = ()
    failed: Lane | None = None


def take_apart(lanes: LaneTable, plan: StepPlan) -> Apart:
    """Choose how the lanes of a failed step go on; the plan was undone before."""
    prompts = [lanes[chunk.lane_id] for chunk in plan.prompts]
    decoding = [lanes[lane_id] for lane_id in plan.decodes]
    drafting = [lanes[draft.lane_id] for draft in plan.drafts]
    assert prompts or decoding, f"step {plan.step_id} failed and had nothing to run"
    if len(prompts) + len(decoding) == 1 and not drafting:
        return Apart(failed=(*prompts, *decoding)[0])
    if not prompts and drafting:
        for lane in drafting:
            lane.drafter = None
        return Apart()
    # Those whose jobs have ended meanwhile run no more.
    alone = tuple(lane for lane in prompts or decoding if lane.is_running)
    for lane in alone:
        lane.is_alone = True
    return Apart(alone=alone)
