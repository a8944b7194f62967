"""Writes plans as a master does: keeps its own view of the lanes and fills in digests."""

from ranks.plan import Chunk, Draw, LaneGrow, LaneJoin, ResolvedRows, StepPlan, rows_digest


class PlanWriter:
    """Lanes as the master sees them; each call gives the next plan."""

    def __init__(self, *, block_size: int, epoch: int = 1) -> None:
        self.block_size = block_size
        self.epoch = epoch
        self.next_step_id = 1
        self.follows = 0
        self.next_block = 0
        self.positions: dict[int, int] = {}
        self.tables: dict[int, list[int]] = {}
        # Of the next plan.
        self.cached: dict[int, tuple[int, ...]] = {}

    def plan(
        self,
        *,
        prompts: dict[int, list[int]] | None = None,
        more: dict[int, list[int]] | None = None,
        decodes: tuple[int, ...] = (),
        leaves: tuple[int, ...] = (),
        draws: bool = True,
        draw: Draw | None = None,
    ) -> StepPlan:
        """`prompts` join and run; `more` goes on in lanes that are there.

        A lane that joins has the KV of its `cached` blocks already, and its prompt follows them.
        """
        prompts, more = prompts or {}, more or {}
        for lane_id in leaves:
            del self.positions[lane_id], self.tables[lane_id]
        joins = tuple(self._join(lane_id, draw or Draw()) for lane_id in prompts)
        chunks = tuple(
            Chunk(lane_id=lane, start=self.positions[lane], token_ids=tuple(ids), draws=draws)
            for lane, ids in (prompts | more).items()
        )
        lengths = [(c.lane_id, len(c.token_ids)) for c in chunks] + [(d, 1) for d in decodes]
        grows = tuple(filter(None, (self._grow(lane, length) for lane, length in lengths)))
        gained = {grow.lane_id: grow.block_ids for grow in grows}
        told = {chunk.lane_id: chunk.token_ids for chunk in chunks}
        rows = [
            ResolvedRows(
                lane_id=lane,
                start=self._advance(lane, length),
                num_blocks=len(self.tables[lane]),
                gained_blocks=gained.get(lane, ()),
                token_ids=told.get(lane),
            )
            for lane, length in lengths
        ]
        plan = StepPlan(
            step_id=self.next_step_id,
            epoch=self.epoch,
            follows=self.follows,
            leaves=leaves,
            joins=joins,
            grows=grows,
            chunks=chunks,
            decodes=decodes,
            digest=rows_digest(self.next_step_id, self.epoch, rows),
        )
        self.follows = self.next_step_id
        self.next_step_id += 1
        return plan

    def take_back(self, plan: StepPlan) -> None:
        """Forget a plan that was not run, the newest first; one with leaves stays."""
        assert not plan.leaves
        for grow in plan.grows:
            del self.tables[grow.lane_id][-len(grow.block_ids) :]
            self.next_block -= len(grow.block_ids)
        for lane_id in plan.decodes:
            self.positions[lane_id] -= 1
        for chunk in plan.chunks:
            self.positions[chunk.lane_id] -= len(chunk.token_ids)
        self.follows = plan.follows

    def _join(self, lane_id: int, draw: Draw) -> LaneJoin:
        cached = self.cached.get(lane_id, ())
        num_cached_tokens = len(cached) * self.block_size
        self.positions[lane_id], self.tables[lane_id] = num_cached_tokens, list(cached)
        return LaneJoin(lane_id=lane_id, draw=draw, num_cached_tokens=num_cached_tokens)

    def _grow(self, lane_id: int, length: int) -> LaneGrow | None:
        table = self.tables[lane_id]
        wanted = max(0, -(-(self.positions[lane_id] + length) // self.block_size) - len(table))
        block_ids = tuple(range(self.next_block, self.next_block + wanted))
        self.next_block += wanted
        table.extend(block_ids)
        block_ids = self.cached.pop(lane_id, ()) + block_ids
        return LaneGrow(lane_id=lane_id, block_ids=block_ids) if block_ids else None

    def _advance(self, lane_id: int, length: int) -> int:
        start = self.positions[lane_id]
        self.positions[lane_id] = start + length
        return start
