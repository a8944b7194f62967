"""Run one request of a trail by itself, and compare it token for token.

Law: a reply depends on the request alone, so the tokens that a lane drew among others
are those that it draws alone from the same prompt and with the same draw.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lanehost.engine.backend import Backend
from lanehost.rank_group.facts import GroupFacts
from lanehost.recorder.check import given_at
from lanehost.recorder.checker import PlanChecker, PlanFault
from lanehost.recorder.epochs import TrailEpochs
from lanehost.recorder.images_again import ReplayedImages, prepared_again
from lanehost.recorder.records import (
    EpochBegan,
    Header,
    JobArrived,
    Note,
    StepReturned,
    StepSubmitted,
    StepTurnedDown,
)
from lanehost.recorder.replay import (
    InFlight,
    OnStep,
    Outcome,
    Replayed,
    StepsInFlight,
    check_fits,
)
from lanehost.recorder.story import Difference, DrawnAt, JobStory, Story
from lanehost.recorder.trail import CannotReplay
from ranks.plan import (
    Chunk,
    ChunkImage,
    LaneGrow,
    LaneJoin,
    RefusalKind,
    ResolvedRows,
    StagedSlice,
    StepPlan,
    StepRefused,
    rows_digest,
)

_LANE = 0
_MAX_NAMED = 8


def find_request(header: Header, notes: Iterable[Note], job_id: str) -> JobStory:
    """Read a trail for one request: its prompt, and all that was drawn for it.

    Raises:
        TrailError: The trail cannot be read, or holds no such request.
    """
    reader = _DrawReader(header.facts)
    found: JobStory | None = None
    others: list[str] = []
    for note in notes:
        reader.take(note)
        if isinstance(note, JobArrived):
            others.append(note.job_id)
            if note.job_id == job_id:
                found = reader.story.job(job_id)
    if found is None:
        named = ", ".join(others[:_MAX_NAMED]) + (", ..." if len(others) > _MAX_NAMED else "")
        raise CannotReplay(f"no request {job_id}, the trail has {len(others)}: {named or 'none'}")
    return found


class _DrawReader:
    """Follows plans only to know the position of each token that was drawn."""

    def __init__(self, facts: GroupFacts) -> None:
        self.story = Story()
        self._epochs = TrailEpochs(facts)
        self._begin()

    def _begin(self) -> None:
        self._checker = PlanChecker(self._epochs.facts, proves_digests=False)
        self._in_flight = StepsInFlight()

    def take(self, note: Note) -> None:
        self._epochs.take(note)
        self.story.take(note)
        match note:
            case EpochBegan():
                self._begin()
            case StepSubmitted(plan=plan):
                self._in_flight.add(plan, self.story.joined(plan))
            case StepReturned() | StepTurnedDown():
                step = self._in_flight.take(note)
                try:
                    self._follow(step, note)
                except PlanFault as fault:
                    raise CannotReplay(f"step {note.step_id} breaks a rule: {fault}") from fault
            case _:
                pass

    def _follow(self, step: InFlight, note: Outcome) -> None:
        if isinstance(note, StepReturned):
            self._returned(step, note)
        elif note.refusal is RefusalKind.FAILED:
            self._checker.check_failed(step.plan, guessing=step.guessing)
        elif note.refusal is RefusalKind.SKIPPED:
            self._checker.check_skipped(step.plan)

    def _returned(self, step: InFlight, note: StepReturned) -> None:
        accepted = dict(note.accepted)
        for row in self._checker.check(step.plan, guessing=step.guessing):
            self._checker.settle(row, len(accepted.get(row.lane_id, ())))
            job = step.jobs.get(row.lane_id)
            if job is None or not row.draws:
                continue
            for position, given in given_at(row, note).items():
                at = DrawnAt(step_id=note.step_id, lane_id=row.lane_id, given=given)
                job.drawn.setdefault(position, at)


async def replay_alone(
    backend: Backend, header: Header, job: JobStory, *, on_step: OnStep
) -> Replayed:
    """Run a request on ranks that have run nothing yet, as far as it was drawn.

    Args:
        backend: The ranks.
        header: The trail's.
        job: From `find_request`.
        on_step: Hears how many steps have been run.

    Raises:
        CannotReplay: The ranks are others than the trail's, or it has no prompts.
        RankGroupLost: The ranks were lost.
    """
    check_fits(header, backend)
    replayed, images = Replayed(), ReplayedImages()
    for number, image in enumerate(job.images, start=1):
        await images.encode(backend, number, prepared_again(image))
    position = len(job.prompt_ids)
    for plan in _plans(backend.facts, job, num_draws=len(job.drawn)):
        backend.submit(plan)
        outcome = await backend.next_outcome()
        replayed.num_steps += 1
        replayed.num_tokens += plan.num_tokens
        on_step(replayed.num_steps)
        if isinstance(outcome, StepRefused):
            raise CannotReplay(f"the ranks refused step {plan.step_id}: {outcome.reason}")
        if not outcome.drawn and not outcome.failures:
            continue
        recorded = job.drawn.get(position)
        if recorded is None:
            return replayed
        got = outcome.failures.get(_LANE) or outcome.drawn.get(_LANE)
        if got != recorded.given:
            replayed.difference = Difference(
                what=f"token {position - len(job.prompt_ids)} of the reply",
                recorded=str(recorded.given),
                got=f"{got} alone",
                step_id=recorded.step_id,
                lane_id=recorded.lane_id,
                job_id=job.job_id,
            )
            return replayed
        position += 1
    return replayed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A part of the prompt that one step runs: an ordinary chunk, or a pass of its own."""

    chunk: Chunk
    is_staged: bool = False

    def staged(self, pass_id: int, facts: GroupFacts) -> StagedSlice | None:
        """Return it as a pass through all layers."""
        if not self.is_staged:
            return None
        return StagedSlice(
            pass_id=pass_id, chunks=(self.chunk,), first_layer=0, stop_layer=facts.num_layers
        )


def _parts(facts: GroupFacts, job: JobStory) -> list[_Part]:
    """Cut a prompt: whole images in passes as long as they may be, what is behind in chunks."""
    parts: list[_Part] = []
    images = tuple(
        ChunkImage(image_id=number, start=one.start, num_tokens=one.num_tokens)
        for number, one in enumerate(job.images, start=1)
    )
    end, start = len(job.prompt_ids), 0
    while start < end:
        ahead = [one for one in images if one.start >= start]
        stop = min(start + (facts.max_staged_tokens if ahead else facts.max_step_tokens), end)
        if split := [one.start for one in ahead if one.start < stop < one.stop]:
            stop = split[0]
        chunk = Chunk(
            lane_id=_LANE,
            start=start,
            token_ids=job.prompt_ids[start:stop],
            draws=stop == end,
            images=tuple(one for one in ahead if one.stop <= stop),
        )
        parts.append(_Part(chunk=chunk, is_staged=bool(ahead)))
        start = stop
    return parts


def _plans(facts: GroupFacts, job: JobStory, *, num_draws: int) -> Iterator[StepPlan]:
    """Write the plans of one lane: its prompt in parts, then a token a step."""
    if num_draws == 0:
        return
    parts = _parts(facts, job)
    num_blocks = -(-(len(job.prompt_ids) + num_draws) // facts.block_size)
    block_ids = tuple(range(num_blocks))
    for number in range(len(parts) + num_draws - 1):
        is_first, part = number == 0, parts[number] if number < len(parts) else None
        staged = None if part is None else part.staged(number + 1, facts)
        rows = ResolvedRows(
            lane_id=_LANE,
            start=len(job.prompt_ids) + number - len(parts) if part is None else part.chunk.start,
            num_blocks=num_blocks,
            gained_blocks=block_ids if is_first else (),
            token_ids=None if part is None else part.chunk.token_ids,
            images=() if part is None else part.chunk.images,
        )
        yield StepPlan(
            step_id=number + 1,
            epoch=facts.epoch,
            follows=number,
            joins=(LaneJoin(lane_id=_LANE, draw=job.draw),) if is_first else (),
            grows=(LaneGrow(lane_id=_LANE, block_ids=block_ids),) if is_first else (),
            chunks=() if part is None or part.is_staged else (part.chunk,),
            decodes=(_LANE,) if part is None else (),
            staged=staged,
            digest=rows_digest(number + 1, facts.epoch, [rows], staged),
        )
