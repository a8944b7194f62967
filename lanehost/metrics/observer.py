"""Counts what becomes of jobs and steps.

Law: of a job that is open it remembers a few numbers, of one that has ended nothing.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lanehost.errors import RankGroupLost
from lanehost.job import Failed, Finished, Job, Priority
from lanehost.metrics.pauses import Pauses
from lanehost.metrics.tally import Tally
from ranks.plan import StepPlan, StepRefused, StepResult

_NS = 1e-9


@dataclass(slots=True, kw_only=True, eq=False)
class _OpenJob:
    """What is remembered of a job, and when things happened to it."""

    arrived_s: float
    priority: Priority
    scope: str
    waits_since_s: float | None
    was_seated: bool = False
    first_token_s: float | None = None


class MetricsObserver:
    """Implements `lanehost.engine.observer.EngineObserver`."""

    def __init__(self, tally: Tally, *, clock: Callable[[], float], scopes: Sequence[str]) -> None:
        """Begin with no job.

        Args:
            tally: Where to count.
            clock: Seconds that only rise, the engine's clock.
            scopes: Who may send requests.
        """
        self._tally = tally
        self._clock = clock
        self._keys = [(priority.value, scope) for scope in scopes for priority in Priority]
        self._open: dict[str, _OpenJob] = {}
        self._job_ids: dict[int, str] = {}  # of each lane the one that sat down last
        self._in_flight: deque[tuple[int, float]] = deque()  # step, since when
        self._pauses = Pauses()

    def __repr__(self) -> str:
        return f"<MetricsObserver {len(self._open)} jobs, {len(self._in_flight)} steps>"

    @property
    def num_waiting(self) -> Counter[tuple[str, str]]:
        """Jobs that wait for a lane, by priority and scope."""
        counts = Counter(dict.fromkeys(self._keys, 0))
        for job in self._open.values():
            if job.waits_since_s is not None:
                counts[job.priority.value, job.scope] += 1
        return counts

    @property
    def wait_age_s(self) -> dict[tuple[str, str], float]:
        """How long the job has waited that waits longest, by priority and scope.

        0 where nobody waits. A job that gave its lane back waits since then, and not since
        it arrived.
        """
        now_s = self._clock()
        ages_s = dict.fromkeys(self._keys, 0.0)
        for job in self._open.values():
            if job.waits_since_s is not None:
                key = (job.priority.value, job.scope)
                ages_s[key] = max(ages_s.get(key, 0.0), now_s - job.waits_since_s)
        return ages_s

    @property
    def step_age_s(self) -> float:
        """How long the oldest step in flight has been out; 0 while none is, or nobody waits."""
        if not self._in_flight or not self._open:
            return 0.0
        return self._clock() - self._in_flight[0][1]

    def job_arrived(self, job: Job) -> None:
        """Count an accepted request and its prompt."""
        tally = self._tally
        self._open[job.job_id] = _OpenJob(
            arrived_s=job.arrived_s,
            priority=job.priority,
            scope=job.scope,
            waits_since_s=job.arrived_s,
        )
        tally.accepted[job.priority.value, job.scope] += 1
        tally.prompt_tokens[job.scope] += len(job.prompt_ids)
        tally.image_tokens[job.scope] += sum(image.num_tokens for image in job.images)

    def job_seated(self, job_id: str, lane_id: int, num_cached_tokens: int) -> None:
        """Count how long a job waited and what was cached; the first time only."""
        self._job_ids[lane_id] = job_id
        self._pauses.forget(lane_id)
        job = self._open[job_id]
        job.waits_since_s = None
        if not job.was_seated:
            job.was_seated = True
            self._tally.queue[job.priority].observe(self._clock() - job.arrived_s)
            self._tally.cached_tokens[job.scope] += num_cached_tokens

    def job_parked(self, job_id: str) -> None:
        """Count a job that gave up its lane, and waits again."""
        self._open[job_id].waits_since_s = self._clock()
        self._tally.jobs_parked += 1

    def job_yielded(self, job_id: str) -> None:
        """Count a job that gave way, and waits again."""
        self._open[job_id].waits_since_s = self._clock()
        self._tally.jobs_yielded += 1

    def job_ended(self, job_id: str, event: Finished | Failed, token_ids: Sequence[int]) -> None:
        """Count how a job ended, and its reply."""
        tally, num_tokens = self._tally, len(token_ids)
        ending = event.reason.value if isinstance(event, Finished) else type(event.error).__name__
        tally.ended[ending] += 1
        job = self._open.pop(job_id)
        tally.generated_tokens[job.scope] += num_tokens
        if isinstance(event, Finished) and not job.was_seated:
            # All that it asked for was in the prompt cache: it took no lane.
            tally.queue[job.priority].observe(event.timing.queue_s)
            tally.cached_tokens[job.scope] += event.usage.cached_tokens
        if job.first_token_s is not None and num_tokens > 1:
            decode_s = self._clock() - job.first_token_s
            tally.output_token[job.priority].observe(decode_s / (num_tokens - 1))

    def step_planned(self, plan: StepPlan) -> None:
        """Note when a step went out."""
        self._in_flight.append((plan.step_id, self._clock()))

    def step_ended(self, plan: StepPlan, outcome: StepResult | StepRefused) -> None:
        """Count what a step did, or why it did nothing."""
        if self._in_flight and self._in_flight[0][0] == plan.step_id:
            self._in_flight.popleft()
        if isinstance(outcome, StepRefused):
            self._tally.steps_refused[outcome.kind.value] += 1
        else:
            self._count_rows(plan, outcome)
            self._count_slice(plan)
            self._count_pauses(outcome)
            self._note_first_tokens(plan, outcome)

    def lane_alone(self, lane_id: int) -> None:
        """Count a lane that runs alone."""
        del lane_id
        self._tally.lanes_alone += 1

    def group_lost(self, lost: RankGroupLost) -> None:
        """Count the end of an epoch; its steps in flight are with nobody any more."""
        del lost
        self._in_flight.clear()
        self._pauses.forget()
        self._tally.epochs_lost += 1

    def job_carried(self, job_id: str) -> None:
        """Count a job that lost its lane, and waits again."""
        self._open[job_id].waits_since_s = self._clock()
        self._tally.jobs_carried += 1

    def group_formed(self, epoch: int) -> None:
        """Take no note: how far the ranks are is read off the engine."""

    def _count_rows(self, plan: StepPlan, result: StepResult) -> None:
        tally = self._tally
        tally.steps += 1
        tally.step_compute.observe(result.compute_ns * _NS)
        tally.decode_tokens += len(plan.decodes)
        for chunk in plan.chunks:
            tally.chunk_tokens += len(chunk.token_ids)
        for draft in plan.drafts:
            tally.draft_tokens += len(draft.token_ids)
            tally.accepted_draft_tokens += len(result.accepted.get(draft.lane_id, ()))
        if len(plan.chunks) > 1:
            tally.passes += 1
            tally.pass_prompts += len(plan.chunks)

    def _count_slice(self, plan: StepPlan) -> None:
        staged, tally = plan.staged, self._tally
        if staged is None:
            return
        self._pauses.note_slice(self._clock())
        tally.staged_slices += 1
        if staged.first_layer == 0:
            tally.staged_passes += 1
            tally.staged_rows += staged.num_tokens

    def _count_pauses(self, result: StepResult) -> None:
        for pause_s in self._pauses.note_tokens(result.drawn, self._clock()):
            self._tally.staged_pause.observe(pause_s)
            self._tally.longest_stall_s = max(self._tally.longest_stall_s, pause_s)

    def _note_first_tokens(self, plan: StepPlan, result: StepResult) -> None:
        for chunk in plan.prompts:
            if not chunk.draws or chunk.lane_id not in result.drawn:
                continue
            job = self._open.get(self._job_ids[chunk.lane_id])
            if job is None or job.waits_since_s is not None:
                # It has ended or given its lane up meanwhile: what is drawn is thrown away.
                continue
            # One that had parked draws after its prompt again.
            if job.first_token_s is None:
                job.first_token_s = self._clock()
                self._tally.first_token[job.priority].observe(job.first_token_s - job.arrived_s)
