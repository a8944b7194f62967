"""Run a trail again and name the first thing that differs.

    replay_on      the recorded plans on real ranks, in the recorded order: as many in flight

Beside it: check.py checks a trail without ranks, alone.py runs one request by itself.

Laws: the same plans from an empty state give the same results, or something is broken:
the numerics, a rank, the master, or the trail. A step that failed, or was skipped behind
one that had, changed nothing: it is left out, and its id is passed over. So a replay runs
what was run, whatever made the step fail then.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from lanehost.engine.backend import Backend, Backends, Epochs
from lanehost.errors import RankGroupLost
from lanehost.recorder.epochs import TrailEpochs
from lanehost.recorder.images_again import ReplayedImages
from lanehost.recorder.records import (
    Closed,
    Cut,
    EpochBegan,
    GroupWasLost,
    Header,
    Note,
    StepReturned,
    StepSubmitted,
    StepTurnedDown,
)
from lanehost.recorder.story import Difference, JobStory, Story
from lanehost.recorder.trail import CannotReplay, DamagedTrail, TrailError
from ranks.plan import RefusalKind, StepPlan, StepRefused, StepResult

# Not the world size nor the device: replies are to be the same on one rank and on two.
_MUST_BE_EQUAL = (
    "weights_digest",
    "config_digest",
    "dtype",
    "vocab_size",
    "context_length",
    "epoch",
    "num_lanes",
    "num_blocks",
    "block_size",
    "max_step_tokens",
)

_REFUSED_AS = {
    RefusalKind.MISMATCH: "refused",
    RefusalKind.FAILED: "failed",
    RefusalKind.SKIPPED: "skipped",
}

OnStep = Callable[[int], None]
Outcome = StepReturned | StepTurnedDown


@dataclass(slots=True, kw_only=True)
class Replayed:
    """How a replay went; `difference` None when all was equal.

    `num_left_out` steps had failed, or were skipped behind one that had. `end` says how
    the trail ends: None when a trail stops in mid-run.
    """

    num_steps: int = 0
    num_tokens: int = 0
    num_left_out: int = 0
    num_epochs: int = 1
    difference: Difference | None = None
    end: Closed | Cut | GroupWasLost | None = None

    def begin_epoch(self) -> None:
        """Note that the ranks were lost, and the run went on."""
        self.num_epochs += 1
        self.end = None

    def count(self, plan: StepPlan, note: Outcome, on_step: OnStep) -> None:
        """Count a step that was equal."""
        if was_left_out(note):
            self.num_left_out += 1
            return
        self.num_steps += 1
        self.num_tokens += plan.num_tokens
        on_step(self.num_steps)


def was_left_out(note: Outcome) -> bool:
    """Say whether a step was not run and no harm done."""
    return isinstance(note, StepTurnedDown) and note.refusal is not RefusalKind.MISMATCH


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """A plan whose result was not read yet, and the jobs of its lanes.

    `guessing` are lanes of which a draft was in flight when it was written.
    """

    plan: StepPlan
    jobs: dict[int, JobStory]
    guessing: frozenset[int]


class StepsInFlight:
    """Plans in the order of the trail; results must come in that order."""

    def __init__(self) -> None:
        """Begin with none."""
        self._steps: deque[InFlight] = deque()

    def add(self, plan: StepPlan, jobs: dict[int, JobStory]) -> None:
        """Add the next plan."""
        guessing = frozenset(lane for step in self._steps for lane in step.plan.drafts_by_lane)
        self._steps.append(InFlight(plan=plan, jobs=jobs, guessing=guessing))

    def take(self, note: Outcome) -> InFlight:
        """Take the plan that a recorded outcome is of.

        Raises:
            DamagedTrail: There is none.
        """
        if not self._steps or self._steps[0].plan.step_id != note.step_id:
            raise DamagedTrail(f"step {note.step_id} came back, and was not the next in flight")
        return self._steps.popleft()


class _NotesAhead:
    """The notes of a trail in their order, and a look at what is to come."""

    def __init__(self, notes: Iterable[Note]) -> None:
        self._notes = iter(notes)
        self._seen: deque[Note] = deque()
        self._error: TrailError | None = None

    def __iter__(self) -> Iterator[Note]:
        """Yield each note; what cannot be read raises only behind all that can."""
        while (next_note := self._seen.popleft() if self._seen else self._read()) is not None:
            yield next_note
        if self._error is not None:
            raise self._error

    def outcome_of(self, step_id: int) -> Outcome | None:
        """Return what came of a step that is in flight; None when the trail does not say.

        Outcomes come in the order of the plans: behind that of a later step there is none, nor
        behind the loss of the epoch.
        """
        for note in self._unread():
            if isinstance(note, GroupWasLost):
                return None
            if isinstance(note, StepReturned | StepTurnedDown) and note.step_id >= step_id:
                return note if note.step_id == step_id else None
        return None

    def _unread(self) -> Iterator[Note]:
        """Yield what is to come, and keep it."""
        yield from self._seen
        while (unseen := self._read()) is not None:
            self._seen.append(unseen)
            yield unseen

    def _read(self) -> Note | None:
        try:
            return next(self._notes, None)
        except TrailError as error:
            self._error = error
            return None


async def replay_on(
    ranks: Epochs, header: Header, notes: Iterable[Note], *, on_step: OnStep
) -> Replayed:
    """Run all plans of a trail that were run, on ranks that have run nothing yet.

    Where the trail's ranks were lost, these are given up too, and form anew: empty.

    Args:
        ranks: The ranks.
        header: The trail's.
        notes: What the trail holds.
        on_step: Hears how many steps have been compared.

    Raises:
        TrailError: The trail cannot be replayed, or cannot be read to its end.
        RankGroupLost: The ranks were lost.
    """
    backend = ranks.first
    check_fits(header, backend)
    replayed, story, in_flight = Replayed(), Story(), StepsInFlight()
    ahead, epochs = _NotesAhead(notes), TrailEpochs(header.facts)
    images = ReplayedImages()
    for note in ahead:
        epochs.take(note)
        story.take(note)
        if isinstance(note, EpochBegan):
            backend = await _next_epoch(backend, ranks.later, note.epoch)
            in_flight = StepsInFlight()
            replayed.begin_epoch()
        await images.take(backend, note)
        match note:
            case StepSubmitted(plan=plan):
                in_flight.add(plan, story.joined(plan))
                outcome = ahead.outcome_of(plan.step_id)
                if outcome is not None and not was_left_out(outcome):
                    backend.submit(plan)
            case StepReturned() | StepTurnedDown():
                step = in_flight.take(note)
                _check_pass_is_whole(step.plan, note)
                replayed.difference = await _difference(backend, step, note)
                if replayed.difference is not None:
                    return replayed
                replayed.count(step.plan, note, on_step)
            case Closed() | Cut() | GroupWasLost():
                replayed.end = note
            case _:
                pass
    return replayed


def _check_pass_is_whole(plan: StepPlan, note: Outcome) -> None:
    """See that no pass was dropped in its middle: ranks on which no slice fails keep it open.

    Raises:
        CannotReplay: One was.
    """
    is_failed = isinstance(note, StepTurnedDown) and note.refusal is RefusalKind.FAILED
    if is_failed and plan.staged is not None and plan.staged.first_layer:
        raise CannotReplay(
            f"step {note.step_id} failed in the middle of a staged pass, and ranks on which it "
            "does not fail cannot be told to drop it: check the plans with --against fake"
        )


async def _difference(backend: Backend, step: InFlight, note: Outcome) -> Difference | None:
    if was_left_out(note):
        return None
    return _compare(step, note, await _outcome(backend, note.step_id))


async def _next_epoch(backend: Backend, later: Backends, epoch: int) -> Backend:
    """Have the ranks form anew, as often as it takes: plans name their epoch."""
    while backend.facts.epoch < epoch:
        ended = f"epoch {backend.facts.epoch} of the replay ends: the trail's ranks were lost"
        backend.lose(RankGroupLost(ended, epoch=backend.facts.epoch, rank=None))
        backend = await later.next_backend()
    return backend


def check_fits(header: Header, backend: Backend) -> None:
    """See that these ranks hold what the trail's ranks held.

    Raises:
        CannotReplay: They do not, or the trail has no prompts.
    """
    check_has_prompts(header)
    for name in _MUST_BE_EQUAL:
        recorded, here = getattr(header.facts, name), getattr(backend.facts, name)
        if recorded != here:
            raise CannotReplay(f"{name} of the trail is {recorded}, of the ranks here {here}")


def check_has_prompts(header: Header) -> None:
    """See that the trail was recorded with prompts.

    Raises:
        CannotReplay: It was not.
    """
    if not header.keeps_prompts:
        raise CannotReplay(
            "the trail holds digests in place of prompts, so no ranks can run it: record with "
            "--record-prompts, or check its plans with --against fake"
        )


async def _outcome(backend: Backend, step_id: int) -> StepResult | StepRefused:
    try:
        return await backend.next_outcome()
    except RankGroupLost as lost:
        message = f"at step {step_id} of the replay: {lost}"
        raise RankGroupLost(message, epoch=lost.epoch, rank=lost.rank) from lost


def _compare(step: InFlight, recorded: Outcome, got: StepResult | StepRefused) -> Difference | None:
    if isinstance(recorded, StepTurnedDown) or isinstance(got, StepRefused):
        if isinstance(recorded, StepTurnedDown) and _did_not_fit(got):
            return None
        return Difference(
            what="the step",
            recorded=said_of(recorded),
            got=f"{_REFUSED_AS[got.kind]} ({got.reason})"
            if isinstance(got, StepRefused)
            else "run",
            step_id=recorded.step_id,
        )
    told = given_by_lane(recorded.drawn, recorded.failures, recorded.accepted)
    found = given_by_lane(got.drawn.items(), got.failures.items(), got.accepted.items())
    for lane_id in sorted(told.keys() | found.keys()):
        if told.get(lane_id) != found.get(lane_id):
            job = step.jobs.get(lane_id)
            return Difference(
                what="what the lane drew",
                recorded=str(told.get(lane_id, "nothing")),
                got=str(found.get(lane_id, "nothing")),
                step_id=recorded.step_id,
                lane_id=lane_id,
                job_id=None if job is None else job.job_id,
            )
    if recorded.digest != got.digest:
        return Difference(
            what="the digest of what was fed and drawn",
            recorded=recorded.digest.hex(),
            got=got.digest.hex(),
            step_id=recorded.step_id,
        )
    return None


def _did_not_fit(got: StepResult | StepRefused) -> bool:
    """Say whether a plan did not fit the ranks, or the one that it follows did not."""
    return isinstance(got, StepRefused) and got.kind is not RefusalKind.FAILED


def said_of(recorded: Outcome) -> str:
    """Put into words what became of a step."""
    if isinstance(recorded, StepReturned):
        return "run"
    return f"{_REFUSED_AS[recorded.refusal]} ({recorded.reason})"


def given_by_lane(
    drawn: Iterable[tuple[int, int]],
    failures: Iterable[tuple[int, object]],
    accepted: Iterable[tuple[int, tuple[int, ...]]],
) -> dict[int, str]:
    """Put what each lane gave into words: its tokens, and its fault if it has one."""
    words: dict[int, list[str]] = {}
    for lane_id, token_ids in accepted:
        words.setdefault(lane_id, []).extend(map(str, token_ids))
    for lane_id, token_id in drawn:
        words.setdefault(lane_id, []).append(str(token_id))
    for lane_id, fault in failures:
        words.setdefault(lane_id, []).append(str(fault))
    return {lane_id: " ".join(said) for lane_id, said in words.items()}
