"""All ranks as the engine sees them: one plan to all, one outcome back.

Laws: the same bytes go to every rank; an outcome is given out once every rank has
answered that very step, in step order, and only if all ran the same and drew the same, or
all refused it alike; one lost rank ends the group, at once, for whoever waits. The leader's
tokens count.

A rank that could not run a step answers at once, and its fellows must follow soon: one that
does not is in a collective that never ends, and the group is lost (ADR 11).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

from lanehost.errors import RankGroupLost
from lanehost.rank_group.facts import MAX_STEPS_IN_FLIGHT, GroupFacts
from lanehost.rank_group.files import GroupFiles
from lanehost.rank_group.images import GroupImages
from lanehost.rank_group.link import RankLink
from ranks.plan import RefusalKind, StepPlan, StepRefused, StepResult
from ranks.wire.codec import encode_master_message
from ranks.wire.file_messages import FileDone
from ranks.wire.image_messages import ImageDone

LEADER = 0
# From one rank's word that it could not run a step to that of the slowest other one. They
# compute the same up to there; the time-out of a collective is much longer.
FELLOWS_GRACE_S = 5.0

Answer = StepResult | StepRefused
# What ranks say beside the steps, in an order of its own.
SideAnswer = FileDone | ImageDone


class RankGroup:
    """A formed group; implements `lanehost.engine.backend.Backend`."""

    def __init__(
        self,
        *,
        facts: GroupFacts,
        links: list[RankLink],
        on_lost: Callable[[RankGroupLost], None],
        fellows_grace_s: float = FELLOWS_GRACE_S,
    ) -> None:
        """Send to these streams, in rank order; `on_lost` is called at most once.

        Whoever reads the streams hands every answer to `take_answer`, and every loss to `lose`.
        """
        self._facts = facts
        self._fellows_grace_s = fellows_grace_s
        self._on_lost = on_lost
        self._links = links
        self.files = GroupFiles(epoch=facts.epoch, links=links)
        self.images = GroupImages(
            epoch=facts.epoch,
            links=links,
            on_differ=lambda how: self.lose(self._out_of_step(how, rank=None)),
        )
        self._in_flight: deque[int] = deque()
        self._answers: dict[int, dict[int, Answer]] = {}
        self._changed = asyncio.Event()
        self.has_run_step = False
        self._lost: asyncio.Future[RankGroupLost] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        """Show the epoch, and the steps in flight or that it is lost."""
        state = "LOST" if self._lost.done() else f"in flight {list(self._in_flight)}"
        return f"<RankGroup epoch {self._facts.epoch} {state}>"

    @property
    def facts(self) -> GroupFacts:
        """What all ranks agreed on."""
        return self._facts

    def submit(self, plan: StepPlan) -> None:
        """Hand a plan to every rank; returns at once.

        Raises:
            RankGroupLost: A rank was lost.
        """
        if self._lost.done():
            raise self._lost.result()
        assert len(self._in_flight) < MAX_STEPS_IN_FLIGHT, f"step {plan.step_id} on top of {self!r}"
        payload = encode_master_message(plan)
        self._in_flight.append(plan.step_id)
        self._answers[plan.step_id] = {}
        for link in self._links:
            link.send(payload)

    async def next_outcome(self) -> StepResult | StepRefused:
        """Wait for the oldest plan in flight.

        Raises:
            RankGroupLost: A rank was lost, or ranks disagreed on what they ran.
        """
        while not self._lost.done():
            if self._in_flight and len(self._answers[self._in_flight[0]]) == len(self._links):
                return self._take_oldest()
            self._changed.clear()
            await self._changed.wait()
        raise self._lost.result()

    async def lost(self) -> RankGroupLost:
        """Wait until the group is lost; returns why."""
        return await asyncio.shield(self._lost)

    def lose(self, error: RankGroupLost) -> None:
        """End the group; the first reason stays."""
        if not self._lost.done():
            self._end(error)
            self._on_lost(error)

    def close(self) -> None:
        """End the group on purpose; whoever still waits gets RankGroupLost."""
        if not self._lost.done():
            self._end(RankGroupLost("the group was stopped", epoch=self._facts.epoch, rank=None))

    def _end(self, error: RankGroupLost) -> None:
        self._lost.set_result(error)
        self.files.lose(error)
        self.images.lose(error)
        self._changed.set()

    def _take_oldest(self) -> Answer:
        answers = self._answers.pop(self._in_flight.popleft())
        disagreement = find_disagreement(answers)
        if disagreement is not None:
            self.lose(self._out_of_step(disagreement, rank=None))
            raise self._lost.result()
        self.has_run_step |= isinstance(answers[LEADER], StepResult)
        return answers[LEADER]

    def owed_step(self, rank: int) -> int | None:
        """Return the step that this rank is to answer next, None when it owes nothing."""
        return next((step for step in self._in_flight if rank not in self._answers[step]), None)

    def take_answer(self, rank: int, message: Answer | SideAnswer) -> None:
        """Take what a rank said of a step, of a file or of an image.

        Of steps, anything but the answer that is due loses the group.
        """
        if self._lost.done():
            return
        if isinstance(message, FileDone):
            self.files.take_done(rank, message)
            return
        if isinstance(message, ImageDone):
            self.images.take_done(rank, message)
            return
        due = self.owed_step(rank)
        if (message.step_id, message.epoch) != (due, self._facts.epoch):
            self.lose(
                self._out_of_step(
                    f"rank {rank} answered step {message.step_id} of epoch {message.epoch}, "
                    f"due is step {due} of epoch {self._facts.epoch}",
                    rank=rank,
                )
            )
            return
        self._answers[message.step_id][rank] = message
        self._changed.set()
        if isinstance(message, StepRefused) and message.kind is RefusalKind.FAILED:
            loop = asyncio.get_running_loop()
            loop.call_later(self._fellows_grace_s, self._see_fellows_of, rank, message.step_id)

    def _see_fellows_of(self, rank: int, step_id: int) -> None:
        """Lose the group if a rank has not answered a step that `rank` could not run."""
        answers = self._answers.get(step_id)
        silent = [link.rank for link in self._links if answers and link.rank not in answers]
        if silent:
            self.lose(
                self._out_of_step(
                    f"rank {rank} could not run step {step_id}, and rank {silent[0]} has said "
                    f"nothing of it for {self._fellows_grace_s} s",
                    rank=silent[0],
                )
            )

    def _out_of_step(self, reason: str, *, rank: int | None) -> RankGroupLost:
        return RankGroupLost(f"out of step: {reason}", epoch=self._facts.epoch, rank=rank)


def find_disagreement(answers: Mapping[int, Answer]) -> str | None:
    """Say how the answers of all ranks to one step differ, or None when they agree.

    Refusals of one kind agree whatever their reasons; results agree when their digests
    are equal.
    """
    step_id = answers[LEADER].step_id
    refused = {rank: a for rank, a in sorted(answers.items()) if isinstance(a, StepRefused)}
    if refused and len(refused) < len(answers):
        rank, refusal = next(iter(refused.items()))
        return f"rank {rank} refused step {step_id} that others ran: {refusal.reason}"
    if len({refusal.kind for refusal in refused.values()}) > 1:
        said = ", ".join(
            f"rank {rank} as {refusal.kind.value} ({refusal.reason})"
            for rank, refusal in refused.items()
        )
        return f"step {step_id} was refused by {said}"
    digests = {rank: a.digest for rank, a in answers.items() if isinstance(a, StepResult)}
    for rank, digest in sorted(digests.items()):
        if digest != digests[LEADER]:
            return (
                f"step {step_id} gave digest {digests[LEADER].hex()} on rank {LEADER}, "
                f"{digest.hex()} on rank {rank}"
            )
    return None
