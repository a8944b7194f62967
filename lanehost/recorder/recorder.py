"""Take note of all that the engine and the ranks tell each other.

Laws: recorded and unrecorded replies are equal, since everything is forwarded as it
came; a fault of the recorder stops the recording and harms no reply; notes of one run
are in the order in which they happened on the engine's loop.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import structlog

from lanehost.disk_cache.interface import RankFiles
from lanehost.engine.backend import Backend, Backends, Epochs
from lanehost.errors import RankGroupLost
from lanehost.fault import record_fault
from lanehost.job import Failed, Finished, Job
from lanehost.rank_group.facts import GroupFacts
from lanehost.rank_group.image_interface import RankImages
from lanehost.recorder.images import RecordingImages
from lanehost.recorder.records import (
    EpochBegan,
    GroupWasLost,
    Header,
    ImageDropped,
    ImageEncoded,
    JobArrived,
    JobEnded,
    JobSeated,
    Note,
    RecordedImage,
    Redactor,
    StepReturned,
    StepSubmitted,
    StepTurnedDown,
    without_pixels,
)
from lanehost.recorder.writer import TrailWriter, WriterLimits
from lanehost.settings import RecordSettings
from lanehost.tasks import to_the_end
from ranks.plan import StepPlan, StepRefused, StepResult

log = structlog.get_logger()

# What a note weighs beside the token ids in it.
_NOTE_WEIGHT = 32
# Bytes of pixels that weigh as much as a token id.
_PIXELS_PER_ID = 32


class Recorder:
    """Implements `lanehost.engine.observer.EngineObserver`, and hears of steps."""

    def __init__(self, writer: TrailWriter, *, clock_ns: Callable[[], int]) -> None:
        """Begin; `clock_ns` gives nanoseconds that only rise."""
        self._writer = writer
        self._clock_ns = clock_ns

    def job_arrived(self, job: Job) -> None:
        """Note a job and its prompt."""
        self._note(lambda at_ns: _arrived(job, at_ns))

    def job_seated(self, job_id: str, lane_id: int, num_cached_tokens: int) -> None:
        """Note that a job took a lane."""
        self._note(
            lambda at_ns: (
                JobSeated(
                    at_ns=at_ns,
                    job_id=job_id,
                    lane_id=lane_id,
                    num_cached_tokens=num_cached_tokens,
                ),
                0,
            )
        )

    def job_ended(self, job_id: str, event: Finished | Failed, token_ids: Sequence[int]) -> None:
        """Note how a job ended, and its whole reply."""
        ending = event.reason.value if isinstance(event, Finished) else type(event.error).__name__
        self._note(
            lambda at_ns: (
                JobEnded(at_ns=at_ns, job_id=job_id, ending=ending, token_ids=tuple(token_ids)),
                len(token_ids),
            )
        )

    def job_parked(self, job_id: str) -> None:
        """Take no note: the next plan has the lane leave, and a seating follows."""

    def job_yielded(self, job_id: str) -> None:
        """Take no note: the next plan has the lane leave, and a seating follows."""

    def step_planned(self, plan: StepPlan) -> None:
        """Take no note: `step_submitted` does, nearer to the ranks."""

    def step_ended(self, plan: StepPlan, outcome: StepResult | StepRefused) -> None:
        """Take no note: `step_returned` does, nearer to the ranks."""

    def lane_alone(self, lane_id: int) -> None:
        """Take no note: it shows in the plans."""

    def image_encoded(self, epoch: int, image_id: int, digest: bytes) -> None:
        """Note that the rows of an image are there."""
        self._note(
            lambda at_ns: (
                ImageEncoded(at_ns=at_ns, epoch=epoch, image_id=image_id, digest=digest),
                0,
            )
        )

    def image_dropped(self, epoch: int, image_id: int) -> None:
        """Note that the rows of an image go."""
        self._note(lambda at_ns: (ImageDropped(at_ns=at_ns, epoch=epoch, image_id=image_id), 0))

    def step_submitted(self, plan: StepPlan) -> None:
        """Note a plan that went to the ranks."""
        self._note(lambda at_ns: (StepSubmitted(at_ns=at_ns, plan=plan), _num_ids(plan)))

    def step_returned(self, outcome: StepResult | StepRefused) -> None:
        """Note what came back."""
        self._note(lambda at_ns: _returned(outcome, at_ns))

    def job_carried(self, job_id: str) -> None:
        """Take no note: whoever has a lane loses it with the group."""

    def group_formed(self, epoch: int) -> None:
        """Note that another epoch has begun."""
        self._note(lambda at_ns: (EpochBegan(at_ns=at_ns, epoch=epoch), 0))

    def group_lost(self, lost: RankGroupLost) -> None:
        """Note that an epoch has ended."""
        self._note(
            lambda at_ns: (
                GroupWasLost(at_ns=at_ns, epoch=lost.epoch, rank=lost.rank, reason=str(lost)),
                0,
            )
        )

    def _note(self, make: Callable[[int], tuple[Note, int]]) -> None:
        """Write a note; `make` gives it and how many token ids are in it."""
        if not self._writer.is_recording:
            return
        try:
            note, num_ids = make(self._clock_ns())
            self._writer.put(note, weight=num_ids + _NOTE_WEIGHT)
        except Exception as bug:  # noqa: BLE001 - the border to the engine: no reply is harmed
            self._writer.stop(f"internal error, record {record_fault(bug).record_id}")


def _num_ids(plan: StepPlan) -> int:
    return plan.num_tokens + (0 if plan.staged is None else plan.staged.num_tokens)


def _arrived(job: Job, at_ns: int) -> tuple[Note, int]:
    note = JobArrived(
        at_ns=at_ns,
        job_id=job.job_id,
        label=job.label,
        prompt_ids=job.prompt_ids,
        max_tokens=job.max_tokens,
        draw=job.draw,
        scope=job.scope,
        priority=job.priority,
        images=tuple(
            RecordedImage(
                start=one.start,
                num_tokens=one.num_tokens,
                digest=one.image.digest,
                width=one.image.width,
                height=one.image.height,
                pixels=one.image.pixels,
            )
            for one in job.images
        ),
    )
    num_pixels = sum(len(one.image.pixels) for one in job.images)
    return note, len(job.prompt_ids) + num_pixels // _PIXELS_PER_ID


def _returned(outcome: StepResult | StepRefused, at_ns: int) -> tuple[Note, int]:
    if isinstance(outcome, StepRefused):
        refused = StepTurnedDown(
            at_ns=at_ns,
            step_id=outcome.step_id,
            epoch=outcome.epoch,
            refusal=outcome.kind,
            reason=outcome.reason,
        )
        return refused, 0
    returned = StepReturned(
        at_ns=at_ns,
        step_id=outcome.step_id,
        epoch=outcome.epoch,
        drawn=tuple(outcome.drawn.items()),
        failures=tuple(outcome.failures.items()),
        accepted=tuple(outcome.accepted.items()),
        digest=outcome.digest,
        compute_ns=outcome.compute_ns,
    )
    return returned, len(outcome.drawn)


class RecordingBackend:
    """Implements `lanehost.engine.backend.Backend` whole: forwards, and lets the recorder know."""

    def __init__(self, inner: Backend, recorder: Recorder) -> None:
        """Stand before `inner`."""
        self._inner = inner
        self._recorder = recorder
        self._images: RecordingImages | None = None

    @property
    def facts(self) -> GroupFacts:
        """What all ranks agreed on."""
        return self._inner.facts

    @property
    def files(self) -> RankFiles | None:
        """The files of these ranks; what is done with them is in no trail."""
        return self._inner.files

    @property
    def images(self) -> RankImages | None:
        """The images of these ranks; those that are encoded and dropped are noted."""
        inner = self._inner.images
        if inner is not None and self._images is None:
            epoch = self._inner.facts.epoch
            self._images = RecordingImages(inner, self._recorder, epoch=epoch)
        return self._images

    def submit(self, plan: StepPlan) -> None:
        """Hand a plan to every rank, and note it if they took it.

        Raises:
            RankGroupLost: the group cannot run it.
        """
        self._inner.submit(plan)
        self._recorder.step_submitted(plan)

    async def next_outcome(self) -> StepResult | StepRefused:
        """Wait for the oldest plan in flight, and note what it gave.

        Raises:
            RankGroupLost: a rank was lost, or ranks disagreed on what they ran.
        """
        outcome = await self._inner.next_outcome()
        self._recorder.step_returned(outcome)
        return outcome

    def lose(self, error: RankGroupLost) -> None:
        """End the epoch."""
        self._inner.lose(error)


class RecordingBackends:
    """Implements `lanehost.engine.backend.Backends`: each that it gives is recorded."""

    def __init__(self, inner: Backends, recorder: Recorder) -> None:
        """Stand before `inner`."""
        self._inner = inner
        self._recorder = recorder

    async def next_backend(self) -> Backend:
        """Wait for the next epoch's ranks.

        Raises:
            RankGroupLost: The ranks have been given up for good.
        """
        return RecordingBackend(await self._inner.next_backend(), self._recorder)


def recorded(epochs: Epochs, recorder: Recorder) -> Epochs:
    """Put the recorder between the engine and the ranks of every epoch."""
    return Epochs(
        first=RecordingBackend(epochs.first, recorder),
        later=RecordingBackends(epochs.later, recorder),
    )


def _transform(settings: RecordSettings, redaction_key: bytes) -> Callable[[Note], Note]:
    """Return what takes out of notes what is not to be in the trail."""
    if not settings.keeps_prompts:
        return Redactor(redaction_key).redact
    return (lambda note: note) if settings.keeps_images else without_pixels


@asynccontextmanager
async def recording(
    settings: RecordSettings,
    header: Header,
    *,
    redaction_key: bytes,
    clock_ns: Callable[[], int],
    limits: WriterLimits | None = None,
) -> AsyncIterator[Recorder]:
    """Record for as long as the body runs.

    Args:
        settings: Where to, and whether with prompts.
        header: That of the first file.
        redaction_key: 16 to 64 random bytes that are kept nowhere else.
        clock_ns: Nanoseconds that only rise.
        limits: Sizes of files and of what waits; None for the usual ones.

    Raises:
        StartupFailed: the first file cannot be written.
    """
    writer = TrailWriter(
        settings.folder,
        header,
        transform=_transform(settings, redaction_key),
        limits=limits or WriterLimits(),
        clock_ns=clock_ns,
    )
    writer.start()
    log.info("recording_started", path=str(writer.path), keeps_prompts=settings.keeps_prompts)
    try:
        yield Recorder(writer, clock_ns=clock_ns)
    finally:
        # In a thread: the disk may be slow, and the ranks are still to be ended.
        await to_the_end(asyncio.to_thread(writer.close))
