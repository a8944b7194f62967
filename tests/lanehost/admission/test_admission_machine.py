"""Admission as a whole, in any order of events: line, lanes, blocks and prompt cache."""

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lanehost.admission.give_way import lane_to_give_way
from lanehost.admission.line import Line
from lanehost.admission.setup import AlreadyKept, Wait
from lanehost.admission.take_job import take_job
from lanehost.engine.holdings import Holdings
from lanehost.errors import Overloaded
from lanehost.job import Priority
from lanehost.lanes.growth import grow_lanes
from lanehost.lanes.lane import LaneEvent
from lanehost.settings import EngineSettings, LineSettings
from tests.support.fake_ranks import fake_facts
from tests.support.jobs import make_sequence

NUM_BLOCKS = 12


class AdmissionMachine(RuleBasedStateMachine):
    """Jobs come, sit down, compute, park, give way and end; the engine's part is played here."""

    def __init__(self):
        super().__init__()
        facts = fake_facts(num_lanes=3, num_blocks=NUM_BLOCKS, block_size=4)
        self.holdings = Holdings(facts, EngineSettings(max_drafts=0))
        self.line = Line(LineSettings())
        self.lanes, self.blocks = self.holdings.lanes, self.holdings.blocks
        self.cache = self.holdings.cache
        self.rooms = (self.line, self.lanes, self.blocks, self.cache)
        self.open = {}
        self.was_seated = set()
        self.num_ended = self.num_joined = 0

    @rule(
        length=st.integers(1, 20),
        tail=st.integers(0, 3),
        max_tokens=st.integers(0, 12),
        scope=st.sampled_from("ab"),
        priority=st.sampled_from(Priority),
    )
    def join(self, length, tail, max_tokens, scope, priority):
        prompt = (*range(length), 100 + tail)
        sequence = make_sequence(prompt, max_tokens=max_tokens, scope=scope, priority=priority)
        try:
            self.line.promise(scope)
            self.line.join(sequence)
        except Overloaded:
            return
        self.open[sequence.job.job_id] = sequence
        self.num_joined += 1

    @rule()
    def admit(self):
        """As many as fit; whoever is asked to wait holds nothing."""
        while True:
            before = self.blocks.num_free + self.cache.num_kept_blocks
            head = self.line.head()
            taken = take_job(*self.rooms)
            if isinstance(taken, Wait):
                if taken is Wait.NOBODY:
                    assert head is None
                else:
                    assert self.line.head() is head
                assert self.blocks.num_free + self.cache.num_kept_blocks >= before
                return
            seated = taken.sequence
            if seated is not head:
                # The head waits for a prefix: other scopes go on.
                assert seated.job.scope != head.job.scope
                assert seated.is_background <= head.is_background or seated.is_promoted
            if isinstance(taken, AlreadyKept):
                assert seated.job.is_warm
                self.end(seated)
            else:
                assert taken.num_cached_tokens < len(taken.prefill_ids)
                self.was_seated.add(seated.job.job_id)

    @precondition(lambda self: self.running())
    @rule(data=st.data(), amount=st.integers(1, 9))
    def compute(self, data, amount):
        """A lane gets on: with its prompt, and then token by token as far as it has blocks."""
        lane = data.draw(st.sampled_from(self.running()))
        if not lane.is_filled:
            end = min(lane.num_computed_tokens + amount, len(lane.prefill_ids))
            lane.num_computed_tokens = lane.num_planned_tokens = end
            if lane.is_filled and lane.is_warm:
                self.finish(lane)
            elif lane.is_filled:
                lane.fire(LaneEvent.PREFILLED)
                self.draw(lane)
        elif lane.wants_decode and not lane.lacks_room:
            lane.num_computed_tokens += 1
            lane.num_planned_tokens += 1
            self.draw(lane)

    @rule()
    def grow(self):
        while (newest := grow_lanes(self.lanes, self.blocks, self.cache)) is not None:
            oldest = min(self.running(), key=lambda lane: lane.seat_number)
            assert newest is not oldest
            newest.sequence.was_parked = True
            self.put_back(newest)

    @precondition(lambda self: self.line.head() is not None)
    @rule()
    def give_way(self):
        head = self.line.head()
        lane = lane_to_give_way(head, self.lanes, cache=self.cache, weights={})
        if lane is not None:
            begun_at = (len(lane.prefill_ids), lane.num_cached_tokens)
            self.put_back(lane)
            assert self.line.head() is head
            assert self.begins_again_at(lane.sequence) > begun_at

    def begins_again_at(self, sequence):
        """Return how far a sequence is: its tokens, and those of them that are kept."""
        borrow = self.cache.borrow(sequence.job.scope, sequence.token_ids)
        if borrow is None:
            return len(sequence.token_ids), 0
        self.cache.report(borrow)
        return len(sequence.token_ids), borrow.num_tokens

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def cancel(self, data):
        sequence = self.open[data.draw(st.sampled_from(sorted(self.open)))]
        lane = self.lanes.find(sequence.job.job_id)
        if lane is None:
            assert self.line.leave(sequence.job.job_id) is sequence
            self.end(sequence)
        else:
            self.finish(lane)

    def running(self):
        return [lane for lane in self.lanes if lane.is_running]

    def draw(self, lane):
        lane.num_planned_draws += 1
        lane.sequence.generated_ids.append(7)
        if lane.sequence.num_left == 0:
            self.finish(lane)

    def finish(self, lane):
        sequence = lane.sequence
        self.leave_lane(lane)
        self.end(sequence)

    def put_back(self, lane):
        sequence = lane.sequence
        self.leave_lane(lane)
        self.line.rejoin(sequence)

    def leave_lane(self, lane):
        self.holdings.keep(lane)
        self.holdings.vacate(lane, last_landed_id=0)

    def end(self, sequence):
        del self.open[sequence.job.job_id]
        self.num_ended += 1

    @invariant()
    def every_job_is_in_one_place(self):
        seated = [lane.job.job_id for lane in self.lanes]
        assert len(seated) + len(self.line) == len(self.open)
        assert self.num_joined == self.num_ended + len(self.open)

    @invariant()
    def every_block_is_free_or_held(self):
        holders = [*self.lanes, *self.cache._entries]
        held = Counter(block for holder in holders for block in holder.block_ids)
        assert all(self.blocks.num_holders(n) == held[n] for n in range(NUM_BLOCKS))
        assert self.blocks.num_free + len(held) == NUM_BLOCKS
        assert self.cache.num_dead == 0

    @invariant()
    def nobody_writes_what_others_hold(self):
        for lane in self.lanes:
            unwritten = lane.block_ids[-(-lane.num_computed_tokens // self.blocks.block_size) :]
            others = {
                block for other in self.lanes if other is not lane for block in other.block_ids
            }
            assert others.isdisjoint(unwritten)

    def teardown(self):
        """Whatever happened: left to themselves, all that are open end."""
        for _ in range(2000):
            if not self.open:
                break
            self.admit()
            self.grow()
            for lane in self.running():
                self.step(lane)
        assert not self.open
        assert self.blocks.num_free + self.cache.num_kept_blocks == NUM_BLOCKS

    def step(self, lane):
        if lane.is_running and not lane.is_filled:
            lane.num_computed_tokens = lane.num_planned_tokens = len(lane.prefill_ids)
            if lane.is_warm:
                self.finish(lane)
            else:
                lane.fire(LaneEvent.PREFILLED)
                self.draw(lane)
        elif lane.is_running and lane.wants_decode and not lane.lacks_room:
            lane.num_computed_tokens += 1
            lane.num_planned_tokens += 1
            self.draw(lane)


TestAdmission = AdmissionMachine.TestCase
