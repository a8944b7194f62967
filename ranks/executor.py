"""Run one plan on this rank: check, forward, draw on the leader, tell the followers.

Laws: everything is checked before the first collective of the step; a refused step
leaves this rank as it was. The leader draws, and its ids reach the followers inside the
step, so that every rank feeds the same tokens in the next one, and says so by digest.
A row whose logits are not numbers fails alone: its lane goes on with token 0 until the
master has taken it out, so that a plan already in flight still fits.
"""

from collections.abc import Callable

import torch

from ranks.errors import StepMismatch
from ranks.kv_store import KvStore
from ranks.lane_table import CheckedStep, LaneTable, Limits, Rows
from ranks.models.registry import CausalLM
from ranks.plan import LaneFault, StepPlan, StepRefused, StepResult, result_digest
from ranks.sampler import Sampler
from ranks.shards import Collective
from ranks.step_inputs import LaneRows, build_inputs

# What is broadcast instead of a token id for a row that is not finite.
_NOT_FINITE = -1
_STAND_IN = 0


class Executor:
    """Owns the lanes and the KV store of this rank; runs one step at a time."""

    def __init__(
        self,
        *,
        model: CausalLM,
        kv: KvStore,
        collective: Collective,
        limits: Limits,
        clock_ns: Callable[[], int],
    ) -> None:
        """Start with every lane free; `clock_ns` is a monotonic clock in nanoseconds."""
        self._model = model
        self._kv = kv
        self._collective = collective
        self._limits = limits
        self._clock_ns = clock_ns
        self._lanes = LaneTable(limits)
        self._sampler = Sampler()

    def run(self, plan: StepPlan) -> StepResult | StepRefused:
        """Run a plan, or refuse it unchanged."""
        started_ns = self._clock_ns()
        try:
            step = self._lanes.check(plan)
        except StepMismatch as err:
            return StepRefused(step_id=plan.step_id, epoch=plan.epoch, reason=str(err))
        outcome = self._compute(step)
        self._lanes.commit(step, {lane: max(token, _STAND_IN) for lane, token in outcome.items()})
        drawn = {lane: token for lane, token in outcome.items() if token != _NOT_FINITE}
        fed = [token_id for rows in step.rows for token_id in rows.token_ids]
        return StepResult(
            step_id=plan.step_id,
            epoch=plan.epoch,
            drawn=drawn,
            failures={lane: LaneFault.NAN for lane in outcome if lane not in drawn},
            digest=result_digest(plan.digest, fed, drawn),
            compute_ns=self._clock_ns() - started_ns,
        )

    @torch.inference_mode()
    def _compute(self, step: CheckedStep) -> dict[int, int]:
        """Run the rows; returns for each lane that draws its token, or _NOT_FINITE."""
        if not step.rows:
            return {}
        inputs = build_inputs(
            [_lane_rows(rows) for rows in step.rows],
            device=self._model.device,
            block_size=self._limits.block_size,
        )
        logits = self._model.forward(inputs, self._kv, self._collective)
        drawing = [rows for rows in step.rows if rows.draws]
        if not drawing:
            return {}
        ids = self._collective.broadcast_ids(self._draw(logits, drawing))
        return dict(zip((rows.lane_id for rows in drawing), ids.tolist(), strict=True))

    def _draw(self, logits: torch.Tensor | None, drawing: list[Rows]) -> torch.Tensor:
        """Draw on the leader: int64 [num_draws]; a follower gives zeros to be overwritten."""
        if logits is None:
            return torch.zeros(len(drawing), dtype=torch.int64, device=self._model.device)
        ids, not_finite = self._sampler.draw(
            logits, [rows.draw for rows in drawing], [rows.end for rows in drawing]
        )
        return ids.masked_fill(torch.tensor(not_finite, device=ids.device), _NOT_FINITE)


def _lane_rows(rows: Rows) -> LaneRows:
    return LaneRows(
        lane_id=rows.lane_id,
        start=rows.start,
        token_ids=list(rows.token_ids),
        block_table=list(rows.block_table),
        draws=rows.draws,
    )
