"""Lanes in staged passes, in any run of plans: what runs, fails, is skipped or must be refused."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ranks.errors import StepMismatch, StepSkipped
from ranks.lane_table import LaneTable, Limits
from ranks.plan import Chunk, ChunkImage, StagedSlice, StepPlan
from tests.support.staged_plans import BLOCK, MAX_STAGED, NUM_LAYERS, Account, join_of

VOCABULARY = 100
LIMITS = Limits(
    epoch=1,
    num_lanes=4,
    num_blocks=4000,
    block_size=BLOCK,
    max_step_tokens=24,
    vocab_size=VOCABULARY,
    context_length=4000,
    num_layers=NUM_LAYERS,
    max_staged_tokens=MAX_STAGED,
)


def spoilt_slices(staged: StagedSlice, account: Account) -> dict[str, StagedSlice]:
    """The slice with one thing wrong, by what its refusal says."""
    first = staged.chunks[0]
    end = first.start + len(first.token_ids)
    found = {
        "slice of layers": replace(staged, stop_layer=NUM_LAYERS + 1),
        "slice of layers .* to": replace(staged, stop_layer=staged.first_layer),
    }
    if staged.first_layer == 0:

        def with_first(**changes: object) -> StagedSlice:
            return replace(staged, chunks=(replace(first, **changes), *staged.chunks[1:]))

        image = ChunkImage(image_id=1, start=end - 1, num_tokens=2)
        found |= {
            "no pass is open": replace(staged, first_layer=1, stop_layer=2),
            "is opened, the last was": replace(staged, pass_id=account.last_pass_id),
            "has no chunks": replace(staged, chunks=()),
            "it is at": with_first(start=first.start + 1, images=()),
            "has a chunk of no tokens": with_first(token_ids=(), images=()),
            "the vocabulary has": with_first(token_ids=(VOCABULARY,), images=()),
            "free are": with_first(images=(image,)),
            f"limit {MAX_STAGED}": with_first(token_ids=(1,) * (MAX_STAGED + 1), images=()),
            "there twice|it is at": replace(staged, chunks=(*staged.chunks, first)),
        }
        return found
    found |= {
        "is opened, pass . is open|is opened, pass .. is open": replace(staged, first_layer=0),
        "goes on, pass": replace(staged, pass_id=staged.pass_id + 1),
        "goes on with other chunks": replace(
            staged, chunks=(replace(first, draws=not first.draws), *staged.chunks[1:])
        ),
    }
    if staged.first_layer > 1:
        found["it is at"] = replace(staged, first_layer=staged.first_layer - 1)
    return found


def spoilt_plans(plan: StepPlan, account: Account) -> dict[str, StepPlan]:
    """The plan with one thing wrong, by what its refusal says."""
    assert plan.staged is not None
    first = plan.staged.chunks[0]
    found = {
        says: replace(plan, staged=staged)
        for says, staged in spoilt_slices(plan.staged, account).items()
    }
    found["the rows' digest is"] = replace(plan, digest=bytes(16))
    found["images outside"] = replace(
        plan,
        chunks=(replace(first, images=(ChunkImage(image_id=1, start=first.start, num_tokens=1),)),),
    )
    if plan.staged.first_layer > 0:
        found["lane . is in the open pass"] = replace(plan, leaves=(first.lane_id,))
        found[f"lane {first.lane_id} is in the open pass"] = replace(
            plan, decodes=(*plan.decodes, first.lane_id)
        )
        found[f"lane {first.lane_id} is in the open"] = replace(
            plan, chunks=(*plan.chunks, replace(first, images=()))
        )
    return found


class StagedLanes(RuleBasedStateMachine):
    """Two tables that hear the same plans, beside an oracle."""

    @initialize()
    def begin(self) -> None:
        self.tables = [LaneTable(LIMITS), LaneTable(LIMITS)]
        self.account = Account()
        self.step_id = 0
        self.ran = 0
        self.token = 0
        self.image_id = 0

    def next_plan(self, data: st.DataObject) -> StepPlan:
        """A plan that fits, as the oracle sees it."""
        account, busy = self.account, self.account.busy()
        free = [lane_id for lane_id in range(LIMITS.num_lanes) if lane_id not in account.seats]
        idle = sorted(set(account.seats) - busy)
        leaves = tuple(one for one in idle if data.draw(st.integers(0, 9)) == 0)
        joining = [one for one in free if data.draw(st.booleans())]
        writer = account.copy()
        for lane_id in leaves:
            del writer.seats[lane_id]
        joins = tuple(join_of(lane_id) for lane_id in joining)
        writer.move(StepPlan(step_id=1, epoch=1, joins=joins))
        prompts, decodes, staging = [], [], []
        for lane_id in sorted(set(writer.seats) - busy):
            if writer.seats[lane_id].has_drawn:
                decodes += [lane_id] * data.draw(st.booleans())
                continue
            where = data.draw(st.sampled_from([None, prompts, staging]))
            if where is not None:
                where.append(lane_id)
        chunks = tuple(self.chunk(data, writer, lane_id, has_images=False) for lane_id in prompts)
        staged = self.next_slice(data, writer, staging)
        ends = [(one.lane_id, one.start + len(one.token_ids)) for one in chunks]
        ends += [(lane_id, writer.seats[lane_id].num_tokens + 1) for lane_id in decodes]
        if staged is not None and staged.first_layer == 0:
            ends += [(one.lane_id, one.start + len(one.token_ids)) for one in staged.chunks]
        grows = tuple(writer.grow_for(lane_id, end) for lane_id, end in ends)
        account.next_block = writer.next_block
        self.step_id += 1
        return account.digested(
            StepPlan(
                step_id=self.step_id,
                epoch=1,
                follows=self.ran,
                leaves=leaves,
                joins=joins,
                grows=tuple(grow for grow in grows if grow.block_ids),
                chunks=chunks,
                decodes=tuple(decodes),
                staged=staged,
            )
        )

    def chunk(
        self, data: st.DataObject, writer: Account, lane_id: int, *, has_images: bool
    ) -> Chunk:
        start, count = writer.seats[lane_id].num_tokens, data.draw(st.integers(1, 6))
        images = []
        if has_images and data.draw(st.booleans()):
            first = data.draw(st.integers(0, count - 1))
            rows = data.draw(st.integers(1, count - first))
            self.image_id += 1
            images.append(ChunkImage(image_id=self.image_id, start=start + first, num_tokens=rows))
        return Chunk(
            lane_id=lane_id,
            start=start,
            token_ids=tuple(range(count)),
            draws=data.draw(st.booleans()),
            images=tuple(images),
        )

    def next_slice(
        self, data: st.DataObject, writer: Account, staging: list[int]
    ) -> StagedSlice | None:
        if writer.open_pass is not None:
            if data.draw(st.booleans()):
                return None
            pass_id, chunks, first = writer.open_pass
        elif staging:
            chunks = tuple(self.chunk(data, writer, one, has_images=True) for one in staging)
            pass_id, first = writer.last_pass_id + data.draw(st.integers(1, 2)), 0
        else:
            return None
        stop = data.draw(st.integers(first + 1, NUM_LAYERS))
        return StagedSlice(pass_id=pass_id, chunks=chunks, first_layer=first, stop_layer=stop)

    def seen(self) -> list[object]:
        return [(table.lanes, table.open_pass) for table in self.tables]

    @rule(data=st.data())
    def run(self, data: st.DataObject) -> None:
        plan = self.next_plan(data)
        drawing = [chunk.lane_id for chunk in plan.chunks if chunk.draws] + list(plan.decodes)
        if plan.staged is not None and plan.staged.stop_layer == NUM_LAYERS:
            drawing += [chunk.lane_id for chunk in plan.staged.chunks if chunk.draws]
        for table in self.tables:
            step = table.check(plan)
            staged = plan.staged.chunks if plan.staged else ()
            assert [rows.lane_id for rows in step.staged_rows] == [one.lane_id for one in staged]
            assert [rows.images for rows in step.staged_rows] == [one.images for one in staged]
            table.commit(step, dict.fromkeys(drawing, 7))
        self.account.run(plan)
        self.ran = plan.step_id

    @rule(data=st.data(), has_another=st.booleans())
    def fail(self, data: st.DataObject, *, has_another: bool) -> None:
        """It fits and could not be run; another that was in flight behind it is skipped."""
        plan = self.next_plan(data)
        before = [table.lanes for table in self.tables]
        for table in self.tables:
            table.fail(table.check(plan))
        self.account.fail(plan)
        if has_another:
            self.step_id += 1
            behind = replace(plan, step_id=self.step_id, follows=plan.step_id)
            for table in self.tables:
                passed = table.open_pass
                with pytest.raises(StepSkipped):
                    table.check(behind)
                assert table.open_pass == passed
        assert [table.lanes for table in self.tables] == before

    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        """A slice with one thing wrong is refused in words, and nothing has changed."""
        plan = self.next_plan(data)
        if plan.staged is None:
            return
        spoilt = spoilt_plans(plan, self.account)
        says = data.draw(st.sampled_from(sorted(spoilt)))
        before = self.seen()
        for table in self.tables:
            with pytest.raises(StepMismatch, match=says):
                table.check(spoilt[says])
        assert self.seen() == before

    @invariant()
    def all_see_the_same(self) -> None:
        if not hasattr(self, "tables"):
            return
        first, second = self.seen()
        assert first == second
        lanes, begun = first
        seats = self.account.seats
        assert set(lanes) == set(seats)
        for lane_id, lane in lanes.items():
            seat = seats[lane_id]
            assert (lane.num_tokens, lane.block_table) == (seat.num_tokens, seat.table)
            assert (lane.last_drawn is not None) == seat.has_drawn
        told = None if begun is None else (begun.pass_id, begun.chunks, begun.next_layer)
        assert told == self.account.open_pass


TestStagedLanes = StagedLanes.TestCase
TestStagedLanes.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
