"""Who sat where, and what was drawn for whom: a trail's jobs, as its notes tell of them.

Law: a token belongs to a position of a job's sequence, whatever epoch, lane and step drew
it; so a job that gave its lane back, or lost it, and was seated again is one sequence.
"""

from dataclasses import dataclass, field

from lanehost.recorder.records import (
    EpochBegan,
    JobArrived,
    JobEnded,
    JobSeated,
    Note,
    RecordedImage,
)
from ranks.plan import Draw, LaneFault, StepPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first thing in which a replay differs from its trail."""

    what: str
    recorded: str
    got: str
    step_id: int | None = None
    lane_id: int | None = None
    job_id: str | None = None

    def __str__(self) -> str:
        """Name the step, the lane and the job, then both sides."""
        where = [
            f"{name} {value}"
            for name, value in (
                ("step", self.step_id),
                ("lane", self.lane_id),
                ("request", self.job_id),
            )
            if value is not None
        ]
        sides = f"{self.what}: recorded {self.recorded}, got {self.got}"
        return f"{', '.join(where)}: {sides}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnAt:
    """What a step drew for a job: a token, or a fault."""

    step_id: int
    lane_id: int
    given: int | LaneFault


@dataclass(slots=True, kw_only=True)
class JobStory:
    """A job as far as the trail was read; `drawn` is by position in its sequence."""

    job_id: str
    prompt_ids: tuple[int, ...]
    draw: Draw
    scope: str = ""
    images: tuple[RecordedImage, ...] = ()
    drawn: dict[int, DrawnAt] = field(default_factory=dict)

    def token_at(self, position: int) -> int | None:
        """Return the token of a position; None when none is known."""
        if position < len(self.prompt_ids):
            return self.prompt_ids[position]
        found = self.drawn.get(position)
        return None if found is None or isinstance(found.given, LaneFault) else found.given

    def image_at(self, position: int) -> RecordedImage | None:
        """Return the image in whose block a position is."""
        blocks = self.images
        return next(
            (one for one in blocks if one.start <= position < one.start + one.num_tokens), None
        )

    def content_at(self, position: int) -> int | bytes | None:
        """Return what is computed at a position: a token, or an image by its digest."""
        image = self.image_at(position)
        return self.token_at(position) if image is None else image.digest

    def reply(self, num_tokens: int) -> list[int | None]:
        """Return the first tokens that were drawn after the prompt."""
        start = len(self.prompt_ids)
        return [self.token_at(start + number) for number in range(num_tokens)]


class Story:
    """Jobs that are open, and the lanes they have joined."""

    def __init__(self) -> None:
        """Begin with no job."""
        self._jobs: dict[str, JobStory] = {}
        self._seated: dict[int, JobStory] = {}
        self._joined: dict[int, JobStory] = {}

    def take(self, note: Note) -> Difference | None:
        """Follow a note about a job; others are ignored."""
        match note:
            case JobArrived(job_id=job_id):
                self._jobs[job_id] = JobStory(
                    job_id=job_id,
                    prompt_ids=note.prompt_ids,
                    draw=note.draw,
                    scope=note.scope,
                    images=note.images,
                )
            case JobSeated(job_id=job_id, lane_id=lane_id) if job_id in self._jobs:
                self._seated[lane_id] = self._jobs[job_id]
            case EpochBegan():
                self._seated.clear()
                self._joined.clear()
            case JobEnded():
                return self._end(note)
            case _:
                pass
        return None

    def job(self, job_id: str) -> JobStory | None:
        """Return a job that is open."""
        return self._jobs.get(job_id)

    def joined(self, plan: StepPlan) -> dict[int, JobStory]:
        """Follow a plan's joins; returns whose lanes run in it."""
        for lane_id in plan.leaves:
            self._joined.pop(lane_id, None)
        for join in plan.joins:
            if join.lane_id in self._seated:
                self._joined[join.lane_id] = self._seated[join.lane_id]
        running = [*(chunk.lane_id for chunk in plan.prompts), *plan.decodes]
        return {lane: self._joined[lane] for lane in running if lane in self._joined}

    def _end(self, note: JobEnded) -> Difference | None:
        job = self._jobs.pop(note.job_id, None)
        if job is None:
            return None
        drawn = job.reply(len(note.token_ids))
        if drawn == list(note.token_ids):
            return None
        number = next(
            number
            for number, (told, found) in enumerate(zip(note.token_ids, drawn, strict=True))
            if told != found
        )
        at = job.drawn.get(len(job.prompt_ids) + number)
        return Difference(
            what=f"token {number} of the reply",
            recorded=str(note.token_ids[number]),
            got=f"{drawn[number]} drawn",
            step_id=None if at is None else at.step_id,
            lane_id=None if at is None else at.lane_id,
            job_id=note.job_id,
        )
