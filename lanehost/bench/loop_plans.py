"""Write the plans of a bare loop: lanes that all do the same, with blocks of their own; pure.

Laws: a lane has the same blocks in every seat, and nobody else writes them; so a lane that
joins again finds there what it computed of its prompt, and only the last part of the prompt
runs anew. Every decode thus begins behind a prompt of the same length, whatever ran before.

It decides nothing of what the engine decides: no line, no stop rules, no text.
"""

import random
from dataclasses import replace

from lanehost.bench.workload import random_ids
from lanehost.rank_group.facts import GroupFacts
from ranks.plan import Chunk, Draw, LaneGrow, LaneJoin, ResolvedRows, StepPlan, rows_digest

_SEED = 7


class LoopPlans:
    """Writes one plan after the other, each following the last."""

    def __init__(self, facts: GroupFacts, *, prompt_tokens: int, max_positions: int) -> None:
        """Lay out the lanes: every one may hold `max_positions`, `prompt_tokens` of a prompt."""
        self._facts = facts
        self._max_positions = max_positions
        self._num_blocks = -(-max_positions // facts.block_size)
        rng = random.Random(_SEED)  # noqa: S311 - no secrets
        self._prompts = [
            random_ids(rng, prompt_tokens, facts.vocab_size) for _ in range(facts.num_lanes)
        ]
        # At least one token must run for the lane to draw.
        self._num_kept = (prompt_tokens - 1) // facts.block_size * facts.block_size
        self._positions: dict[int, int] = {}
        self._step_id = 0

    def prefill(self, lane_id: int) -> StepPlan:
        """Run the whole prompt of a lane; whoever was seated leaves."""
        return self._join([lane_id], num_cached=0)

    def rejoin(self, num_lanes: int) -> StepPlan:
        """Seat the first lanes behind their prompts, which `prefill` has run."""
        return self._join(list(range(num_lanes)), num_cached=self._num_kept)

    def decode(self) -> StepPlan:
        """Let every seated lane decode."""
        rows = []
        for lane_id, position in self._positions.items():
            assert position < self._max_positions, f"lane {lane_id} is full at {position}"
            rows.append(
                ResolvedRows(
                    lane_id=lane_id,
                    start=position,
                    num_blocks=self._num_blocks,
                    gained_blocks=(),
                    token_ids=None,
                )
            )
            self._positions[lane_id] = position + 1
        plan = StepPlan(step_id=0, epoch=self._facts.epoch, decodes=tuple(self._positions))
        return self._plan(plan, rows)

    def _join(self, lane_ids: list[int], *, num_cached: int) -> StepPlan:
        leaves = tuple(self._positions)
        self._positions = {lane_id: len(self._prompts[lane_id]) for lane_id in lane_ids}
        chunks = tuple(
            Chunk(
                lane_id=lane_id,
                start=num_cached,
                token_ids=self._prompts[lane_id][num_cached:],
                draws=True,
            )
            for lane_id in lane_ids
        )
        rows = [
            ResolvedRows(
                lane_id=chunk.lane_id,
                start=chunk.start,
                num_blocks=self._num_blocks,
                gained_blocks=self._blocks_of(chunk.lane_id),
                token_ids=chunk.token_ids,
            )
            for chunk in chunks
        ]
        plan = StepPlan(
            step_id=0,
            epoch=self._facts.epoch,
            leaves=leaves,
            joins=tuple(
                LaneJoin(lane_id=lane_id, draw=Draw(), num_cached_tokens=num_cached)
                for lane_id in lane_ids
            ),
            grows=tuple(
                LaneGrow(lane_id=lane_id, block_ids=self._blocks_of(lane_id))
                for lane_id in lane_ids
            ),
            chunks=chunks,
        )
        return self._plan(plan, rows)

    def _plan(self, plan: StepPlan, rows: list[ResolvedRows]) -> StepPlan:
        """Give a plan its place among the others, and its digest."""
        follows = self._step_id
        self._step_id += 1
        digest = rows_digest(self._step_id, plan.epoch, rows)
        return replace(
            plan, step_id=self._step_id, follows=follows, digest=digest, tells_parts=True
        )

    def _blocks_of(self, lane_id: int) -> tuple[int, ...]:
        first = lane_id * self._num_blocks
        return tuple(range(first, first + self._num_blocks))
