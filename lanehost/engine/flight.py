"""The steps that are with the ranks: their ids, their order, and what each follows.

Laws: outcomes come in the order of the plans; at most `MAX_STEPS_IN_FLIGHT` plans are
out; once a step has failed nothing more leaves until those behind it, which cannot run
either, have come back.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from lanehost.errors import RankGroupLost
from lanehost.lanes.scheduler import StepFrame
from lanehost.lanes.staged_pass import StagedFrame
from lanehost.rank_group.facts import MAX_STEPS_IN_FLIGHT, GroupFacts
from lanehost.settings import EngineSettings
from ranks.plan import StepPlan, StepRefused, StepResult


@dataclass(frozen=True, slots=True)
class Landed:
    """A step that has come back; `was_turned_back`: it followed one that had failed."""

    plan: StepPlan
    was_turned_back: bool


class Flight:
    """Plans in flight, oldest first. Owned by the engine loop."""

    def __init__(self) -> None:
        """Begin with nothing out and nothing run."""
        self._plans: deque[StepPlan] = deque()
        self._num_turned_back = 0
        self._last_id = 0
        self._last_landed_id = 0
        # Will be the last to have run once all that is out has run.
        self._follows = 0

    def __repr__(self) -> str:
        steps = [plan.step_id for plan in self._plans]
        return f"<Flight {steps} follows {self._follows} turned back {self._num_turned_back}>"

    @property
    def is_empty(self) -> bool:
        """Whether no step is out."""
        return not self._plans

    @property
    def takes_more(self) -> bool:
        """Whether another plan may leave now."""
        return self._num_turned_back == 0 and len(self._plans) < MAX_STEPS_IN_FLIGHT

    def frame(
        self,
        facts: GroupFacts,
        settings: EngineSettings,
        *,
        max_prompts: int,
        weights: Mapping[str, int],
        staged: StagedFrame | None = None,
    ) -> StepFrame:
        """Return what the next plan must say and keep to; see `StepFrame`."""
        return StepFrame(
            step_id=self.next_step_id,
            follows=self.follows,
            epoch=facts.epoch,
            max_step_tokens=facts.max_step_tokens,
            max_fill_tokens=settings.max_fill_tokens,
            max_prompts=max_prompts,
            weights=weights,
            staged=staged,
        )

    @property
    def next_step_id(self) -> int:
        """The id of the next plan."""
        return self._last_id + 1

    @property
    def follows(self) -> int:
        """What the next plan follows."""
        return self._follows

    @property
    def last_landed_id(self) -> int:
        """The step that came back last, run or not; 0 before the first."""
        return self._last_landed_id

    def depart(self, plan: StepPlan) -> None:
        """Note that a plan has gone to the ranks."""
        assert self.takes_more, f"step {plan.step_id} on top of {self!r}"
        assert (plan.step_id, plan.follows) == (self.next_step_id, self.follows)
        self._plans.append(plan)
        self._last_id = self._follows = plan.step_id

    def land(self, outcome: StepResult | StepRefused) -> Landed:
        """Take the oldest plan out; `outcome` is of it."""
        plan = self._plans.popleft()
        assert outcome.step_id == plan.step_id, f"step {outcome.step_id} after {plan.step_id}"
        self._last_landed_id = plan.step_id
        was_turned_back = self._num_turned_back > 0
        self._num_turned_back -= was_turned_back
        return Landed(plan, was_turned_back)

    def turn_back(self, failed: StepPlan) -> tuple[StepPlan, ...]:
        """Note that `failed`, which has just landed, was not run.

        Returns the plans behind it, newest first: they will not be run either.
        """
        self._num_turned_back = len(self._plans)
        self._follows = failed.follows
        return tuple(reversed(self._plans))


def out_of_step(outcome: StepResult | StepRefused) -> RankGroupLost:
    """Say that the ranks did with a step what they should not have."""
    if isinstance(outcome, StepRefused):
        message = f"step {outcome.step_id} was refused ({outcome.kind.value}): {outcome.reason}"
    else:
        message = f"step {outcome.step_id} was run behind one that had failed"
    return RankGroupLost(message, epoch=outcome.epoch, rank=None)
