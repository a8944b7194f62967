"""Plans with staged slices, and a slow account of what they may be: the oracle of lane tables.

`Account` is written from the words of `StagedSlice` alone, with plain dicts, and tells of a plan
what must become of it; it shares nothing with `ranks.lane_table` but the plan.
"""

from dataclasses import dataclass, field, replace

from ranks.plan import (
    Chunk,
    Draw,
    LaneGrow,
    LaneJoin,
    ResolvedRows,
    StagedSlice,
    StepPlan,
    rows_digest,
)

NUM_LAYERS, MAX_STAGED, BLOCK = 4, 24, 4


@dataclass
class Seat:
    """A lane as the master knows it."""

    num_tokens: int = 0
    table: tuple[int, ...] = ()
    num_told: int = 0
    has_drawn: bool = False


@dataclass
class Account:
    """All lanes, the open pass, and how to write the digest of a plan over them."""

    seats: dict[int, Seat] = field(default_factory=dict[int, Seat])
    open_pass: tuple[int, tuple[Chunk, ...], int] | None = None
    last_pass_id: int = 0
    next_block: int = 0
    block_size: int = BLOCK
    num_layers: int = NUM_LAYERS

    def copy(self) -> "Account":
        seats = {lane_id: replace(seat) for lane_id, seat in self.seats.items()}
        return replace(self, seats=seats)

    def busy(self) -> set[int]:
        return set() if self.open_pass is None else {one.lane_id for one in self.open_pass[1]}

    def grow_for(self, lane_id: int, end: int) -> LaneGrow:
        """Blocks that the lane needs to hold `end` positions; none that were given before."""
        seat = self.seats[lane_id]
        wanted = max(0, -(-end // self.block_size) - len(seat.table))
        block_ids = tuple(range(self.next_block, self.next_block + wanted))
        self.next_block += wanted
        return LaneGrow(lane_id=lane_id, block_ids=block_ids)

    def digested(self, plan: StepPlan) -> StepPlan:
        """The plan with the digest that a master gives it that means what it says."""
        after = self.copy()
        after.move(plan)
        rows = [after.told(chunk.lane_id, chunk) for chunk in plan.chunks]
        rows += [after.told(lane_id, None) for lane_id in plan.decodes]
        staged = plan.staged.chunks if plan.staged else ()
        rows += [after.told(chunk.lane_id, chunk) for chunk in staged]
        digest = rows_digest(plan.step_id, plan.epoch, rows, plan.staged)
        return replace(plan, digest=digest)

    def told(self, lane_id: int, chunk: Chunk | None) -> ResolvedRows:
        seat = self.seats.get(lane_id, Seat())
        return ResolvedRows(
            lane_id=lane_id,
            start=seat.num_tokens,
            num_blocks=len(seat.table),
            gained_blocks=seat.table[seat.num_told :],
            token_ids=None if chunk is None else chunk.token_ids,
            images=() if chunk is None else chunk.images,
        )

    def move(self, plan: StepPlan) -> None:
        for lane_id in plan.leaves:
            self.seats.pop(lane_id, None)
        for join in plan.joins:
            self.seats[join.lane_id] = Seat()
        for grow in plan.grows:
            seat = self.seats[grow.lane_id]
            seat.table += grow.block_ids

    def run(self, plan: StepPlan) -> None:
        """Take note that a plan has run."""
        self.move(plan)
        for chunk in plan.chunks:
            self._write(chunk.lane_id, len(chunk.token_ids), has_drawn=chunk.draws)
        for lane_id in plan.decodes:
            self._write(lane_id, 1, has_drawn=True)
        if plan.staged is None:
            return
        staged = plan.staged
        ends = staged.stop_layer == self.num_layers
        self.last_pass_id = max(self.last_pass_id, staged.pass_id)
        self.open_pass = None if ends else (staged.pass_id, staged.chunks, staged.stop_layer)
        for chunk in staged.chunks:
            count = len(chunk.token_ids) if ends else 0
            self._write(chunk.lane_id, count, has_drawn=ends and chunk.draws)

    def fail(self, plan: StepPlan) -> None:
        """Take note that a plan could not be run."""
        if plan.staged is not None:
            self.last_pass_id = max(self.last_pass_id, plan.staged.pass_id)
            self.open_pass = None

    def _write(self, lane_id: int, count: int, *, has_drawn: bool) -> None:
        seat = self.seats[lane_id]
        seat.num_tokens += count
        seat.num_told = len(seat.table)
        seat.has_drawn |= has_drawn


def join_of(lane_id: int) -> LaneJoin:
    return LaneJoin(lane_id=lane_id, draw=Draw())


class StagedWriter:
    """Writes plans for a rank, one after the other, over an account of its lanes."""

    def __init__(self, *, block_size: int, num_layers: int, epoch: int = 1) -> None:
        self.epoch = epoch
        self.account = Account(block_size=block_size, num_layers=num_layers)
        self.step_id = self.ran = 0

    def plan(
        self,
        *,
        prompts: dict[int, list[int]] | None = None,
        decodes: tuple[int, ...] = (),
        staged: StagedSlice | None = None,
        leaves: tuple[int, ...] = (),
        draw: Draw | None = None,
    ) -> StepPlan:
        """Lanes that are not there join; `staged` gets the blocks that it needs."""
        chunks = tuple(
            Chunk(lane_id=lane_id, start=0, token_ids=tuple(ids), draws=True)
            for lane_id, ids in (prompts or {}).items()
        )
        opening = staged.chunks if staged is not None and staged.first_layer == 0 else ()
        writer = self.account.copy()
        new = [one.lane_id for one in (*chunks, *opening) if one.lane_id not in writer.seats]
        joins = tuple(LaneJoin(lane_id=lane_id, draw=draw or Draw()) for lane_id in new)
        writer.move(StepPlan(step_id=1, epoch=1, joins=joins))
        ends = [(one.lane_id, one.start + len(one.token_ids)) for one in (*chunks, *opening)]
        ends += [(lane_id, writer.seats[lane_id].num_tokens + 1) for lane_id in decodes]
        grows = [writer.grow_for(lane_id, end) for lane_id, end in ends]
        self.account.next_block = writer.next_block
        self.step_id += 1
        return self.account.digested(
            StepPlan(
                step_id=self.step_id,
                epoch=self.epoch,
                follows=self.ran,
                leaves=leaves,
                joins=joins,
                grows=tuple(grow for grow in grows if grow.block_ids),
                chunks=chunks,
                decodes=decodes,
                staged=staged,
            )
        )

    def ran_well(self, plan: StepPlan) -> None:
        """Take note that a plan has run."""
        self.account.run(plan)
        self.ran = plan.step_id

    def slices(self, chunks: tuple[Chunk, ...], stops: list[int]) -> list[StagedSlice]:
        """A new pass over chunks, whose slices stop at these layers."""
        pass_id = self.account.last_pass_id + 1
        return [
            StagedSlice(pass_id=pass_id, chunks=chunks, first_layer=first, stop_layer=stop)
            for first, stop in zip([0, *stops], stops, strict=False)
        ]
