from collections import deque
from dataclasses import replace
from functools import partial

import pytest

from lanehost.bench.loop_plans import LoopPlans
from lanehost.bench.step_loop import Driver, LoopSettings, StepSample, figures, measure_steps
from lanehost.errors import StepFailed
from ranks.plan import StepResult
from tests.support.fake_ranks import FakeRanks, fake_facts

SETTINGS = LoopSettings(
    lane_counts=(1, 3), prompt_tokens=10, num_rounds=2, num_steps=5, num_prefills=4, num_warmup=2
)
COMPUTE_NS = 1_000


def facts():
    return fake_facts(num_lanes=3, num_blocks=3 * 5, block_size=4, max_step_tokens=64)


class TimedRanks(FakeRanks):
    """Takes `COMPUTE_NS` for each step, one after the other, and `wire_ns` each way."""

    def __init__(self, *, wire_ns=0, write_ns=0):
        super().__init__(facts())
        self.now_ns = 0
        self.wire_ns = wire_ns
        self.write_ns = write_ns
        self.most_in_flight = 0
        self._free_ns = 0
        self._done_ns = deque()

    def clock_ns(self):
        return self.now_ns

    def submit(self, plan):
        self.now_ns += self.write_ns
        super().submit(plan)
        began_ns = max(self._free_ns, self.now_ns + self.wire_ns)
        self._free_ns = began_ns + COMPUTE_NS
        self._done_ns.append(self._free_ns + self.wire_ns)
        self.most_in_flight = max(self.most_in_flight, len(self._done_ns))

    async def next_outcome(self):
        outcome = await super().next_outcome()
        self.now_ns = max(self.now_ns, self._done_ns.popleft())
        if isinstance(outcome, StepResult):
            return replace(outcome, compute_ns=COMPUTE_NS)
        return outcome


async def measure(ranks, settings=SETTINGS):
    heard = []
    found = await measure_steps(ranks, settings, clock_ns=ranks.clock_ns, on_round=heard.append)
    assert heard == list(range(1, settings.num_rounds + 1))
    return found


async def test_prefill_and_every_number_of_lanes_has_its_figures():
    found = await measure(TimedRanks())
    assert [(one.name, one.num_tokens) for one in found] == [
        ("prefill", 10),
        ("decode 1", 1),
        ("decode 3", 3),
    ]


async def test_only_the_steps_that_count_are_counted():
    found = await measure(TimedRanks())
    assert [one.alone.count for one in found] == [8, 10, 10]
    assert [one.paired.count for one in found] == [8, 10, 10]


async def test_a_lone_step_is_compute_and_master_and_wire():
    found = await measure(TimedRanks(wire_ns=100, write_ns=50))
    for one in found:
        parts = (one.compute.p50, one.wire.p50, one.master.p50, one.alone.p50)
        assert parts == (1_000, 200, 50, 1_250)


async def test_with_two_in_flight_master_and_wire_are_hidden():
    ranks = TimedRanks(wire_ns=100, write_ns=50)
    found = await measure(ranks)
    assert ranks.most_in_flight == 2
    for one in found:
        # Not even the first step of a run, which had none before it, is among those that count.
        assert one.paired.most == COMPUTE_NS
        assert (one.hidden_share, one.shown_ns) == (1.0, 0)
    assert found[2].tokens_per_s == pytest.approx(3 / 1e-6)


async def test_what_takes_longer_than_a_step_shows():
    found = await measure(TimedRanks(wire_ns=100, write_ns=3_000))
    assert found[1].shown_ns == 2_000
    assert found[1].hidden_share == pytest.approx(1 - 2_000 / 3_200)


async def test_a_refused_step_ends_the_measurement_with_its_reason():
    ranks = TimedRanks()
    ranks.refused_at_step = 3
    with pytest.raises(StepFailed, match="the ranks refused step 3: asked to"):
        await measure(ranks)


async def test_one_in_flight_means_one():
    ranks = TimedRanks()
    plans = LoopPlans(ranks.facts, prompt_tokens=10, max_positions=17)
    writes = [partial(plans.prefill, 0), plans.decode, plans.decode]
    await Driver(ranks, ranks.clock_ns).run(writes, depth=1)
    assert ranks.most_in_flight == 1
    assert len(ranks.plans_run) == 3


def sample(wall_ns, compute_ns=100, master_ns=10):
    return StepSample(wall_ns=wall_ns, compute_ns=compute_ns, master_ns=master_ns)


def test_medians_count_so_that_one_slow_step_changes_nothing():
    alone = [sample(130), sample(130), sample(99_999)]
    paired = [sample(110), sample(110), sample(99_999)]
    found = figures("decode 1", 1, alone=alone, paired=paired)
    assert (found.alone.p50, found.paired.p50, found.wire.p50) == (130, 110, 20)
    assert found.hidden_share == pytest.approx(1 - 10 / 30)


def test_paired_steps_that_cost_more_than_lone_ones_hide_nothing():
    found = figures("decode 1", 1, alone=[sample(110)], paired=[sample(150)])
    assert found.hidden_share == 0.0


def test_a_lane_holds_its_prompt_and_every_step():
    assert SETTINGS.max_positions == 10 + 2 + 5
