"""Run one plan on this rank: check, forward, draw on the leader, tell the followers.

Laws: everything is checked before the first collective of the step; a refused step
spends its id and changes nothing else. The leader draws, and its ids reach the followers
inside the step, so that every rank feeds the same tokens in the next one, and says so by
digest. A row whose logits are not numbers fails alone: its lane goes on with token 0 until
the master has taken it out, so that a plan already in flight still fits.

A step that cannot be computed, for want of memory or because of somebody's rows, is
refused whole, and the rank lives on (ADR 11): no lane has changed, and the KV that it has
written lies only in blocks of its own lanes, behind the `num_tokens` of each. Nobody reads
it there before it is written again, so the same rows in other steps give the same bits.
This holds until the first collective of the step has begun among several ranks: from then
on fellows may be within one, and what raises ends the epoch (ADR 20).

A slice of a staged pass runs behind all else of its step, in products of its own, and draws with
the end of its pass; a step that fails with a slice drops the pass (ADR 26).
"""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

import structlog
import torch

from ranks.errors import FellowLost, GivenUp, StepBroken, StepMismatch, StepSkipped
from ranks.kv_store import KvStore
from ranks.lane_table import CheckedStep, LaneTable, Limits, Rows
from ranks.models.registry import CausalLM
from ranks.noise import DrawnRow
from ranks.pass_runner import ImageRows, PassRunner, lane_rows, no_images
from ranks.plan import (
    LaneFault,
    RefusalKind,
    StepPlan,
    StepRefused,
    StepResult,
    result_digest,
)
from ranks.sampler import NOT_FINITE
from ranks.shards import Collective, Exchange
from ranks.step_clock import StepClock

log = structlog.get_logger()

# What a lane goes on with whose row was not finite.
_STAND_IN = 0


@dataclass(slots=True)
class _Outcome:
    """What lanes drew: their new token, or the fault; and how much of a draft was right."""

    drawn: dict[int, int] = field(default_factory=dict[int, int])
    failures: dict[int, LaneFault] = field(default_factory=dict[int, LaneFault])
    accepted: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])

    @property
    def fed_next(self) -> dict[int, int]:
        """The token that each lane goes on with."""
        return {**self.drawn, **dict.fromkeys(self.failures, _STAND_IN)}

    def read(self, ids: dict[Rows, list[int]]) -> None:
        """Keep of each draft what equals the tokens drawn at its positions, and one token more."""
        for rows, drawn in ids.items():
            num_right = 0
            while num_right < len(rows.draft_ids) and drawn[num_right] == rows.draft_ids[num_right]:
                num_right += 1
            if rows.draft_ids:
                self.accepted[rows.lane_id] = rows.draft_ids[:num_right]
            if drawn[num_right] == NOT_FINITE:
                self.failures[rows.lane_id] = LaneFault.NAN
            else:
                self.drawn[rows.lane_id] = drawn[num_right]


def survivable_errors(device: torch.device) -> tuple[type[Exception], ...]:
    """Return what a step may raise that leaves the rank as it was."""
    match device.type:
        case "cpu":
            # torch has no class of its own there for want of memory.
            return RuntimeError, MemoryError
        case "cuda":
            # Any other error may have broken the device.
            return (torch.OutOfMemoryError,)
        case _:
            return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a rank holds for its steps: the KV store, and the rows of images by number."""

    kv: KvStore
    image_rows: ImageRows = no_images


class CountedCollective:
    """A collective that counts how many have begun, and how long; implements `Collective`."""

    def __init__(self, inner: Collective, clock: StepClock) -> None:
        """Begin with none."""
        self._inner = inner
        self._clock = clock
        self.num_begun = 0

    def lend_exchange(self) -> Exchange | None:
        """Lend what native code adds through; with it the collectives have begun."""
        lent = self._inner.lend_exchange()
        if lent is not None:
            self.num_begun += 1
        return lent

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum over all ranks."""
        with self._counted():
            return self._inner.all_reduce(tensor)

    def gather_columns(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Join the last dimension over ranks on the leader."""
        with self._counted():
            return self._inner.gather_columns(tensor)

    def broadcast_ids(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the leader's ids on every rank."""
        with self._counted():
            return self._inner.broadcast_ids(ids)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.num_begun += 1
        before = self._clock.enter("exchange")
        yield
        self._clock.enter(before)


class Executor:
    """Owns the lanes, the open pass and the KV store of this rank; runs one step at a time."""

    def __init__(
        self,
        *,
        model: CausalLM,
        held: Held,
        collective: Collective,
        world_size: int,
        limits: Limits,
        clock_ns: Callable[[], int],
    ) -> None:
        """Start with every lane free.

        Args:
            model: This rank's part.
            held: Its KV store, and the rows of images.
            collective: How it speaks with the others.
            world_size: How many ranks there are, this one included.
            limits: What plans are checked against.
            clock_ns: A monotonic clock in nanoseconds.
        """
        self._model = model
        self._kv = held.kv
        self._clock = StepClock(clock_ns)
        self._collective = CountedCollective(collective, self._clock)
        self._has_fellows = world_size > 1
        self._lanes = LaneTable(limits)
        self._passes = PassRunner(model, held.kv, held.image_rows)

    def run(self, plan: StepPlan) -> StepResult | StepRefused:
        """Run a plan, or refuse it whole: then no lane has changed.

        Raises:
            FellowLost: Another rank did not do its part.
            GivenUp: This rank was told to leave meanwhile.
            StepBroken: It failed here, and other ranks may wait for this one.
        """
        self._clock.begin(counts_parts=plan.tells_parts)
        try:
            step = self._lanes.check(plan)
            self._passes.check(step)
        except StepMismatch as err:
            return _refused(plan, RefusalKind.MISMATCH, str(err))
        except StepSkipped as err:
            return _refused(plan, RefusalKind.SKIPPED, str(err))
        self._collective.num_begun = 0
        try:
            outcome = self._compute(step)
        except (FellowLost, GivenUp):
            raise
        except Exception as err:
            if self._has_fellows and self._collective.num_begun:
                raise StepBroken(self._log_failure(plan, err)) from err
            if isinstance(err, survivable_errors(self._model.device)):
                return self._fail(step, err)
            raise
        return self._settle(step, outcome)

    def _settle(self, step: CheckedStep, outcome: _Outcome) -> StepResult:
        self._lanes.commit(step, outcome.fed_next, outcome.accepted)
        self._passes.commit(step)
        plan, ran = step.plan, (*step.rows, *step.staged_rows)
        fed = [token_id for rows in ran for token_id in rows.token_ids]
        digest = result_digest(plan.digest, fed, outcome.drawn)
        compute_ns, parts = self._clock.end()
        return StepResult(
            step_id=plan.step_id,
            epoch=plan.epoch,
            drawn=outcome.drawn,
            failures=outcome.failures,
            accepted=outcome.accepted,
            digest=digest,
            compute_ns=compute_ns,
            parts=parts,
        )

    def _fail(self, step: CheckedStep, error: Exception) -> StepRefused:
        """Refuse a step that raised, once the device has done what was asked of it before."""
        plan = step.plan
        self._lanes.fail(step)
        self._passes.drop(step)
        if self._model.device.type == "cuda":
            torch.cuda.synchronize(self._model.device)
        return _refused(plan, RefusalKind.FAILED, self._log_failure(plan, error))

    def _log_failure(self, plan: StepPlan, error: Exception) -> str:
        name = type(error).__name__
        # Not the message: foreign code may quote what it was given.
        log.error(
            "step_failed",
            step_id=plan.step_id,
            num_tokens=plan.num_tokens,
            num_staged_tokens=plan.staged.num_tokens if plan.staged else 0,
            error=name,
            trace="".join(traceback.format_tb(error.__traceback__)),
        )
        return f"{name} while it was computed"

    @torch.inference_mode()
    def _compute(self, step: CheckedStep) -> _Outcome:
        """Run the rows, then the slice, and read what was drawn."""
        outcome = _Outcome()
        if step.rows:
            self._clock.enter("forward")
            lanes = [lane_rows(rows) for rows in step.rows]
            logits = self._model.forward(lanes, self._kv, self._collective)
            self._clock.enter("sampling")
            self._clock.split_forward(self._model.parts_ns)
            self._read_draws(logits, step.rows, outcome)
        if step.plan.staged is not None:
            self._clock.enter("staged")
            logits = self._passes.run(step, self._collective)
            if step.ends_pass:
                self._clock.enter("sampling")
                self._read_draws(logits, step.staged_rows, outcome)
        self._clock.enter("other")
        return outcome

    def _read_draws(
        self, logits: torch.Tensor | None, rows: tuple[Rows, ...], outcome: _Outcome
    ) -> None:
        drawing = [one for one in rows if one.num_draws]
        if drawing:
            ids = iter(self._draw(logits, drawing))
            outcome.read({one: list(islice(ids, one.num_draws)) for one in drawing})

    def _draw(self, logits: torch.Tensor | None, drawing: list[Rows]) -> list[int]:
        """Draw on the leader, and tell the followers: a token for each row that draws."""
        drawn = [(rows.draw, position) for rows in drawing for position in rows.draw_positions]
        ids = [_STAND_IN] * len(drawn)
        if logits is not None:
            each = enumerate(drawn)
            ids = self._model.draw_rows(
                logits, [DrawnRow(row=n, draw=draw, position=at) for n, (draw, at) in each]
            )
        if not self._has_fellows:
            return ids
        told = torch.tensor(ids, dtype=torch.int64, device=self._model.device)
        found: list[int] = self._collective.broadcast_ids(told).tolist()
        return found


def _refused(plan: StepPlan, kind: RefusalKind, reason: str) -> StepRefused:
    return StepRefused(step_id=plan.step_id, epoch=plan.epoch, kind=kind, reason=reason)
