import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanehost.bench.loop_plans import LoopPlans
from tests.support.fake_ranks import FakeRanks, fake_facts

PROMPT = 10
POSITIONS = 24


def rig(num_lanes=3, prompt_tokens=PROMPT):
    facts = fake_facts(
        num_lanes=num_lanes, num_blocks=num_lanes * 6, block_size=4, max_step_tokens=64
    )
    return LoopPlans(facts, prompt_tokens=prompt_tokens, max_positions=POSITIONS), FakeRanks(facts)


async def run(ranks, plan):
    ranks.submit(plan)
    outcome = await ranks.next_outcome()
    return outcome.drawn


async def test_a_lane_that_joins_again_draws_what_it_drew_behind_its_whole_prompt():
    plans, ranks = rig()
    cold = {}
    for lane_id in range(3):
        cold |= await run(ranks, plans.prefill(lane_id))
    first = await run(ranks, plans.rejoin(3))
    assert first == cold
    said = [await run(ranks, plans.decode()) for _ in range(3)]
    assert await run(ranks, plans.rejoin(3)) == cold
    assert [await run(ranks, plans.decode()) for _ in range(3)] == said


@pytest.mark.parametrize(("prompt", "kept"), [(10, 8), (9, 8), (8, 4), (4, 0), (1, 0)])
async def test_only_the_last_part_of_a_prompt_runs_anew_and_at_least_one_token(prompt, kept):
    plans, ranks = rig(prompt_tokens=prompt)
    await run(ranks, plans.prefill(0))
    plan = plans.rejoin(1)
    await run(ranks, plan)
    assert [len(chunk.token_ids) for chunk in plan.chunks] == [prompt - kept]
    assert plan.joins[0].num_cached_tokens == kept


@given(st.lists(st.sampled_from(["prefill 0", "prefill 2", "rejoin 1", "rejoin 3", "decode"])))
@settings(max_examples=50, deadline=None)
async def test_whatever_is_written_in_turn_fits_the_ranks(steps):
    plans, ranks = rig()
    for lane_id in range(3):
        await run(ranks, plans.prefill(lane_id))
    num_decodes = 0
    for step in steps:
        if step == "decode":
            num_decodes += 1
            if num_decodes < POSITIONS - PROMPT:
                await run(ranks, plans.decode())
            continue
        num_decodes = 0
        name, number = step.split()
        await run(ranks, getattr(plans, name)(int(number)))
    assert len(ranks.plans_run) == len(ranks.plans)


async def test_decodes_end_where_the_blocks_of_a_lane_do():
    plans, _ = rig()
    plans.prefill(0)
    for _ in range(POSITIONS - PROMPT):
        plans.decode()
    with pytest.raises(AssertionError, match="lane 0 is full at 24"):
        plans.decode()
