"""Check a whole trail by its own words: plans by the rules, results by what was planned.

With prompts, the tokens themselves are checked too: that each lane was fed its own job's
sequence, that a cached block holds what its borrower would have computed, that digests
of results are those of what was fed and drawn. Without prompts, the structure is.
"""

from collections.abc import Iterable, Mapping

from lanehost.recorder.checker import CheckedRows, PlanChecker, PlanFault
from lanehost.recorder.epochs import TrailEpochs
from lanehost.recorder.records import (
    Closed,
    Cut,
    EpochBegan,
    GroupWasLost,
    Header,
    ImageDropped,
    ImageEncoded,
    Note,
    StepReturned,
    StepSubmitted,
    StepTurnedDown,
)
from lanehost.recorder.replay import InFlight, OnStep, Outcome, Replayed, StepsInFlight, said_of
from lanehost.recorder.story import Difference, DrawnAt, JobStory, Story
from ranks.plan import LaneFault, RefusalKind, StepPlan, result_digest

# What a lane goes on with when its logits were not numbers.
_STAND_IN = 0


def check_trail(header: Header, notes: Iterable[Note], *, on_step: OnStep) -> Replayed:
    """Check all that a trail holds.

    Raises:
        TrailError: The trail cannot be read to its end.
    """
    check = TrailCheck(header)
    replayed = Replayed()
    plans: dict[int, StepPlan] = {}
    for note in notes:
        replayed.difference = check.take(note)
        if replayed.difference is not None:
            return replayed
        match note:
            case StepReturned() | StepTurnedDown():
                replayed.count(plans.pop(note.step_id), note, on_step)
            case StepSubmitted(plan=plan):
                plans[plan.step_id] = plan
            case EpochBegan():
                plans.clear()
                replayed.begin_epoch()
            case Closed() | Cut() | GroupWasLost():
                replayed.end = note
            case _:
                pass
    return replayed


def given_at(row: CheckedRows, note: StepReturned) -> dict[int, int | LaneFault]:
    """Return what a result gave to a row that draws: by position, in order."""
    first = row.start + (1 if row.token_ids is None else len(row.token_ids))
    given: list[int | LaneFault] = list(dict(note.accepted).get(row.lane_id, ()))
    given += [one for lane_id, one in note.failures if lane_id == row.lane_id]
    if not given or not isinstance(given[-1], LaneFault):
        given += [one for lane_id, one in note.drawn if lane_id == row.lane_id]
    return dict(enumerate(given, start=first))


class TrailCheck:
    """The lanes, blocks and sequences of a trail, as far as it was read."""

    def __init__(self, header: Header) -> None:
        """Begin with nothing run."""
        self._block_size = header.facts.block_size
        self._vocab_size = header.facts.vocab_size
        self._has_tokens = header.keeps_prompts
        self._epochs = TrailEpochs(header.facts)
        self._story = Story()
        self._begin()

    def _begin(self) -> None:
        """Begin an epoch: with nothing run, and nothing in any block."""
        self._checker = PlanChecker(self._epochs.facts, proves_digests=self._has_tokens)
        self._in_flight = StepsInFlight()
        self._is_refused = False
        self._last_drawn: dict[int, int] = {}
        # The tokens whose KV a block holds, and for whose scope, as far as results are back.
        self._content: dict[int, list[int | bytes | None]] = {}
        # The digests of the images whose rows are there, by number.
        self._images: dict[int, bytes] = {}
        self._scopes: dict[int, str] = {}

    def take(self, note: Note) -> Difference | None:
        """Follow a note; returns what is wrong with it, if anything is.

        Raises:
            DamagedTrail: It makes no sense where it stands.
        """
        self._epochs.take(note)
        if isinstance(note, EpochBegan):
            self._begin()
        elif isinstance(note, ImageEncoded):
            self._images[note.image_id] = note.digest
        elif isinstance(note, ImageDropped):
            self._images.pop(note.image_id, None)
        match note:
            case StepSubmitted(plan=plan):
                jobs = self._story.joined(plan)
                self._in_flight.add(plan, jobs)
                return self._check_images(plan, jobs)
            case StepReturned() if self._is_refused:
                return Difference(
                    what="the step behind one that was refused",
                    recorded="run",
                    got="no state that it could have run on",
                    step_id=note.step_id,
                )
            case StepReturned():
                return self._returned(self._in_flight.take(note), note)
            case StepTurnedDown():
                return self._turned_down(self._in_flight.take(note), note)
            case _:
                return self._story.take(note)

    def _check_images(self, plan: StepPlan, jobs: dict[int, JobStory]) -> Difference | None:
        """See that a pass that begins names the images of its lanes' own jobs, and all of them."""
        if plan.staged is None or plan.staged.first_layer:
            return None
        for chunk in plan.staged.chunks:
            job = jobs.get(chunk.lane_id)
            if job is None:
                continue
            end = chunk.start + len(chunk.token_ids)
            own = {
                one.start: (one.num_tokens, one.digest)
                for one in job.images
                if chunk.start <= one.start < end
            }
            named = {
                one.start: (one.num_tokens, self._images.get(one.image_id)) for one in chunk.images
            }
            if named != own:
                return Difference(
                    what="the images of a staged pass",
                    recorded=_images_in_words(named),
                    got=_images_in_words(own),
                    step_id=plan.step_id,
                    lane_id=chunk.lane_id,
                    job_id=job.job_id,
                )
        return None

    def _turned_down(self, step: InFlight, note: StepTurnedDown) -> Difference | None:
        if self._is_refused:
            return None
        try:
            match note.refusal:
                case RefusalKind.MISMATCH:
                    return self._refused(step, note)
                case RefusalKind.FAILED:
                    self._checker.check_failed(step.plan, guessing=step.guessing)
                case RefusalKind.SKIPPED:
                    self._checker.check_skipped(step.plan)
        except PlanFault as fault:
            return _broken(fault, step, note)
        return None

    def _refused(self, step: InFlight, note: StepTurnedDown) -> Difference | None:
        """See that a plan breaks a rule; nothing is known of what comes behind it."""
        self._is_refused = True
        try:
            self._checker.check(step.plan, guessing=step.guessing)
        except PlanFault:
            return None
        return Difference(
            what="the plan",
            recorded=said_of(note),
            got="no rule that it breaks",
            step_id=note.step_id,
        )

    def _returned(self, step: InFlight, note: StepReturned) -> Difference | None:
        try:
            rows = self._checker.check(step.plan, guessing=step.guessing)
        except PlanFault as fault:
            return _broken(fault, step, note)
        return self._check_result(step, rows, note)

    def _check_result(
        self, step: InFlight, rows: tuple[CheckedRows, ...], note: StepReturned
    ) -> Difference | None:
        accepted = dict(note.accepted)
        told = dict(note.drawn) | dict(note.failures)
        planned = sorted(row.lane_id for row in rows if row.draws)
        if sorted(told) != planned:
            return Difference(
                what="the lanes that drew",
                recorded=str(sorted(told)),
                got=f"{planned} planned",
                step_id=note.step_id,
            )
        fed: list[int] = []
        for row in rows:
            right = accepted.get(row.lane_id, ())
            job = step.jobs.get(row.lane_id)
            wrong = self._feed(row, right, fed, job) or self._draw(row, note, job)
            if wrong is not None:
                what, recorded, got = wrong
                return Difference(
                    what=what,
                    recorded=recorded,
                    got=got,
                    step_id=note.step_id,
                    lane_id=row.lane_id,
                    job_id=None if job is None else job.job_id,
                )
            self._checker.settle(row, len(right))
        return self._check_digest(step, note, fed)

    def _feed(
        self,
        row: CheckedRows,
        right: tuple[int, ...],
        fed: list[int],
        job: JobStory | None,
    ) -> tuple[str, str, str] | None:
        """Write a lane's tokens into its blocks; each must be its job's own."""
        if right != row.draft_ids[: len(right)] and self._has_tokens:
            return "the part of the draft that was right", str(right), f"draft {row.draft_ids}"
        if len(right) > len(row.draft_ids):
            return "tokens accepted", str(len(right)), f"{len(row.draft_ids)} in the draft"
        token_ids = row.token_ids
        if token_ids is None:
            token_ids = (self._last_drawn[row.lane_id],)
        fed.extend((*token_ids, *row.draft_ids))
        if not row.is_done:
            return None
        for number, token_id in enumerate((*token_ids, *right)):
            position = row.start + number
            image = None if job is None else job.image_at(position)
            self._put(row, position, token_id if image is None else image.digest, job)
            expected = None if job is None else job.token_at(position)
            if self._has_tokens and expected is not None and expected != token_id:
                return f"the token at position {position}", str(token_id), f"{expected} in the job"
        return self._compare_cached(row, job)

    def _put(
        self, row: CheckedRows, position: int, content: int | bytes, job: JobStory | None
    ) -> None:
        index, offset = divmod(position, self._block_size)
        block_id = row.block_ids[index]
        held = self._content.setdefault(block_id, [])
        del held[offset:]
        held.append(content)
        if job is not None:
            self._scopes[block_id] = job.scope

    def _compare_cached(
        self, row: CheckedRows, job: JobStory | None
    ) -> tuple[str, str, str] | None:
        if job is None:
            return None
        for block_id in row.cached_block_ids:
            scope = self._scopes.get(block_id, job.scope)
            if scope != job.scope:
                what = f"the scope of the cached block {block_id}"
                return what, repr(job.scope), f"{scope!r}, which computed it"
        if not self._has_tokens:
            return None
        for index, block_id in enumerate(row.cached_block_ids):
            start = index * self._block_size
            own = [job.content_at(start + offset) for offset in range(self._block_size)]
            if self._content.get(block_id) != own:
                held = str(self._content.get(block_id))
                return f"the cached block {block_id}", f"tokens {held}", f"{own} in the job"
        return None

    def _draw(
        self,
        row: CheckedRows,
        note: StepReturned,
        job: JobStory | None,
    ) -> tuple[str, str, str] | None:
        """Give a lane its tokens; the same position must always get the same one."""
        if not row.draws:
            return None
        given = given_at(row, note)
        last = next(reversed(given.values()))
        self._last_drawn[row.lane_id] = _STAND_IN if isinstance(last, LaneFault) else last
        for position, one in given.items():
            if isinstance(one, int) and not 0 <= one < self._vocab_size:
                return "the token drawn", str(one), f"a vocabulary of {self._vocab_size}"
            if job is None:
                continue
            at = DrawnAt(step_id=note.step_id, lane_id=row.lane_id, given=one)
            before = job.drawn.setdefault(position, at)
            if before.given != one:
                return f"position {position}", str(one), f"{before.given} in step {before.step_id}"
        return None

    def _check_digest(
        self, step: InFlight, note: StepReturned, fed: list[int]
    ) -> Difference | None:
        if not self._has_tokens:
            return None
        digest = result_digest(step.plan.digest, fed, dict(note.drawn))
        if digest == note.digest:
            return None
        return Difference(
            what="the digest of what was fed and drawn",
            recorded=note.digest.hex(),
            got=digest.hex(),
            step_id=note.step_id,
        )


def _images_in_words(images: Mapping[int, tuple[int, bytes | None]]) -> str:
    """Put images by their first position into words; one that is not there is "nothing"."""
    words = (
        f"{num_tokens} rows of {'nothing' if digest is None else digest.hex()[:8]} at {start}"
        for start, (num_tokens, digest) in sorted(images.items())
    )
    return ", ".join(words) or "none"


def _broken(fault: PlanFault, step: InFlight, note: Outcome) -> Difference:
    """Say that a plan breaks a rule and the ranks did not refuse it for that."""
    job = None if fault.lane_id is None else step.jobs.get(fault.lane_id)
    return Difference(
        what="the plan",
        recorded=said_of(note),
        got=f"a broken rule: {fault}",
        step_id=note.step_id,
        lane_id=fault.lane_id,
        job_id=None if job is None else job.job_id,
    )
