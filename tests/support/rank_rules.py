"""The lane table of a real rank beside the fake ranks: it takes every plan that they run."""

from lanehost.rank_group.facts import GroupFacts
from ranks.errors import StepSkipped
from ranks.lane_table import CheckedStep, LaneTable, Limits
from ranks.plan import RefusalKind, StepPlan, StepResult


class RankRules:
    """Follows plans and results as a rank does, and finds a mismatch where a rank would."""

    def __init__(self, facts: GroupFacts) -> None:
        limits = Limits(
            epoch=facts.epoch,
            num_lanes=facts.num_lanes,
            num_blocks=facts.num_blocks,
            block_size=facts.block_size,
            max_step_tokens=facts.max_step_tokens,
            # Prompts of tests have tokens that the small vocabularies of fakes have not.
            vocab_size=1 << 31,
            context_length=facts.context_length,
            num_layers=facts.num_layers,
            max_staged_tokens=facts.max_staged_tokens,
        )
        self._table = LaneTable(limits)
        self._step: CheckedStep | None = None

    def judge(self, plan: StepPlan, kind: RefusalKind | None) -> RefusalKind | None:
        """Check a plan that has this fate; gives it back."""
        if kind is RefusalKind.MISMATCH:
            return kind
        try:
            step = self._table.check(plan)
        except StepSkipped:
            assert kind is RefusalKind.SKIPPED, "a rank skips it"
            return kind
        assert kind is not RefusalKind.SKIPPED, "a rank does not skip it"
        if kind is RefusalKind.FAILED:
            self._table.fail(step)
        else:
            self._step = step
        return kind

    def commit(self, result: StepResult) -> StepResult:
        """Follow what came of the plan; gives it back."""
        assert self._step is not None
        fed_next = {**result.drawn, **dict.fromkeys(result.failures, 0)}
        self._table.commit(self._step, fed_next, result.accepted)
        return result
