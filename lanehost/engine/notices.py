"""What the engine says of jobs and steps: to the log, and to who observes it.

Laws: one line when a job takes a lane, gives it up, and ends; lines for steps only when
something is wrong with one; never a prompt or a reply.
"""

from collections.abc import Iterable
from dataclasses import replace

import structlog

from lanehost.cache.blocks import BlockPool
from lanehost.cache.prompt_cache import PromptCache
from lanehost.engine.carry import TakenOff
from lanehost.engine.observer import EngineObserver
from lanehost.engine.ticket import Ticket
from lanehost.errors import RankGroupLost
from lanehost.job import Failed, Finished, Job
from lanehost.lanes.lane import Lane
from ranks.plan import StepPlan, StepRefused, StepResult

log = structlog.get_logger()


class Notices:
    """Tells the log and the observer; the engine's loop calls it, so it returns at once."""

    def __init__(self, observer: EngineObserver) -> None:
        """Begin with an engine that is idle."""
        self._observer = observer
        self._is_idle = True

    def arrived(self, ticket: Ticket) -> None:
        """Tell of a job that joined the line."""
        self._observer.job_arrived(_as_given(ticket))

    def seated(self, ticket: Ticket, lane: Lane, *, is_first: bool) -> None:
        """Tell of a job that took a lane, for the first time or again."""
        assert ticket.seated_s is not None
        self._observer.job_seated(ticket.job.job_id, lane.lane_id, lane.num_cached_tokens)
        log.info(
            "job_started" if is_first else "job_resumed",
            job_id=ticket.job.job_id,
            label=ticket.job.label or None,
            lane_id=lane.lane_id,
            prompt_tokens=len(ticket.job.prompt_ids),
            cached_tokens=lane.num_cached_tokens,
            queue_s=round(ticket.seated_s - ticket.job.arrived_s, 3),
        )

    def parked(self, lane: Lane) -> None:
        """Tell of a job that gave its lane up for want of blocks."""
        self._observer.job_parked(lane.job.job_id)
        log.info("job_parked", job_id=lane.job.job_id, lane_id=lane.lane_id)

    def yielded(self, lane: Lane, *, to_job_id: str) -> None:
        """Tell of a job that gave its lane up to another."""
        self._observer.job_yielded(lane.job.job_id)
        log.info("job_yielded", job_id=lane.job.job_id, lane_id=lane.lane_id, to_job_id=to_job_id)

    def ended(self, ticket: Ticket, event: Finished | Failed, lane_id: int | None) -> None:
        """Tell of a job's terminal event."""
        self._observer.job_ended(ticket.job.job_id, event, _drawn_here(ticket))
        log.info(
            "job_ended",
            job_id=ticket.job.job_id,
            label=ticket.job.label or None,
            ending=event.reason.value
            if isinstance(event, Finished)
            else type(event.error).__name__,
            prompt_tokens=len(ticket.job.prompt_ids),
            cached_tokens=ticket.num_cached_tokens,
            completion_tokens=ticket.reply.num_tokens,
            lane_id=lane_id,
        )

    def abandoned(self, ticket: Ticket, event: Failed) -> None:
        """Tell the observer alone of a job that ended with the engine."""
        self._observer.job_ended(ticket.job.job_id, event, _drawn_here(ticket))

    def step_planned(self, plan: StepPlan) -> None:
        """Tell of a plan that went to the ranks."""
        self._observer.step_planned(plan)

    def step_ended(self, plan: StepPlan, outcome: StepResult | StepRefused) -> None:
        """Tell of what came back of a plan."""
        self._observer.step_ended(plan, outcome)
        if isinstance(outcome, StepRefused):
            log.error(
                "step_refused",
                step_id=outcome.step_id,
                kind=outcome.kind.value,
                reason=outcome.reason,
            )

    def taken_apart(self, plan: StepPlan, alone: Iterable[Lane]) -> None:
        """Tell of a step that failed: what was in it, and who of it runs alone next."""
        alone_lane_ids = [lane.lane_id for lane in alone]
        for lane_id in alone_lane_ids:
            self._observer.lane_alone(lane_id)
        log.warning(
            "step_taken_apart",
            step_id=plan.step_id,
            num_prompts=len(plan.chunks),
            num_decodes=len(plan.decodes),
            num_drafts=len(plan.drafts),
            alone_lane_ids=alone_lane_ids,
        )

    def group_lost(self, lost: RankGroupLost, off: TakenOff) -> None:
        """Tell of the end of an epoch: whose jobs wait for the next, who is suspected."""
        self._observer.group_lost(lost)
        for lane in off.carried:
            self._observer.job_carried(lane.job.job_id)
        log.warning(
            "jobs_carried",
            epoch=lost.epoch,
            job_ids=[lane.job.job_id for lane in off.carried],
            suspect_job_ids=[lane.job.job_id for lane in off.carried if lane.is_suspect],
            poisoned_job_ids=[lane.job.job_id for lane in off.poisoned],
        )

    def group_formed(self, epoch: int) -> None:
        """Tell that the next epoch has begun."""
        self._observer.group_formed(epoch)
        log.info("engine_resumed", epoch=epoch)

    def note_idle(self, blocks: BlockPool, cache: PromptCache, *, is_idle: bool) -> None:
        """Log once, when the last job has ended and the last step has retired."""
        if is_idle and not self._is_idle:
            log.info(
                "engine_idle",
                free_blocks=blocks.num_free,
                kept_blocks=cache.num_kept_blocks,
                num_blocks=blocks.num_blocks,
            )
        self._is_idle = is_idle


def _as_given(ticket: Ticket) -> Job:
    """Return the job as this master got it: what an earlier one drew is given, like the prompt."""
    job, num_given = ticket.job, ticket.num_given
    if not num_given:
        return job
    given_ids = tuple(ticket.sequence.generated_ids[:num_given])
    return replace(
        job, prompt_ids=job.prompt_ids + given_ids, max_tokens=job.max_tokens - num_given
    )


def _drawn_here(ticket: Ticket) -> list[int]:
    return ticket.sequence.generated_ids[ticket.num_given :]
