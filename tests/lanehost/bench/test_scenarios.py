from dataclasses import replace

import pytest

from lanehost.bench.measured import Goals
from lanehost.bench.scenarios import Scenario, ServeBench, run_bench
from lanehost.bench.workload import Lengths
from tests.support.bench_client import JumpingClock, ScriptedClient

CLOSED = ServeBench(
    scenario=Scenario.CLOSED,
    lengths=Lengths(prompt=(6,), reply=(4,)),
    goals=Goals(ttft_s=1.0, itl_s=1.0),
    num_requests=10,
    num_warmup=2,
    seed=3,
    num_streams=2,
)
POISSON = replace(CLOSED, scenario=Scenario.POISSON, num_streams=None, rate=2.0)
PREFIX = replace(CLOSED, scenario=Scenario.SHARED_PREFIX, prefix_tokens=20)
LONG = replace(CLOSED, scenario=Scenario.LONG_PROMPT, num_requests=3, long_tokens=50)
ALL = [CLOSED, POISSON, PREFIX, LONG]


async def run(bench, **script):
    clock = JumpingClock()
    client = ScriptedClient(clock, **script)
    heard = []
    served = await run_bench(bench, client, clock, vocab_size=1000, on_counted=heard.append)
    return served, client, heard


@pytest.mark.parametrize("bench", ALL, ids=lambda bench: bench.scenario.value)
async def test_what_warms_up_is_not_counted_and_shares_no_prompt_with_what_is(bench):
    served, client, heard = await run(bench)
    warm, counted = client.prompts[:2], client.prompts[2:]
    assert len(heard) == len(counted) == bench.num_sent
    assert len(served.replies) + len(served.rounds) == bench.num_sent
    assert all(prompt[:2] not in {one[:2] for one in warm} for prompt in counted)


@pytest.mark.parametrize("bench", ALL, ids=lambda bench: bench.scenario.value)
async def test_the_same_seed_asks_the_same_in_the_same_order(bench):
    _, first, _ = await run(bench)
    _, second, _ = await run(bench)
    _, other, _ = await run(replace(bench, seed=4))
    assert first.prompts == second.prompts
    assert first.prompts != other.prompts


@pytest.mark.parametrize("bench", ALL, ids=lambda bench: bench.scenario.value)
async def test_no_sequence_is_longer_than_the_bench_says(bench):
    _, client, _ = await run(bench)
    longest = max(
        len(prompt) + length for prompt, length in zip(client.prompts, client.lengths, strict=True)
    )
    assert longest == bench.most_tokens


async def test_a_closed_loop_has_its_streams_open():
    _, client, _ = await run(CLOSED)
    assert client.most_open == 2


async def test_poisson_requests_are_due_at_arrivals_of_the_seed():
    served, _, _ = await run(POISSON)
    again, _, _ = await run(POISSON)
    assert [one.due_s for one in served.replies] == [one.due_s for one in again.replies]


async def test_all_prompts_behind_a_shared_prefix_have_it():
    _, client, _ = await run(PREFIX)
    counted = client.prompts[2:]
    assert len({prompt[:20] for prompt in counted}) == 1
    assert len({prompt[20:] for prompt in counted}) == len(counted)


async def test_each_round_has_one_long_prompt_of_one_token_among_its_streams():
    served, client, _ = await run(LONG)
    assert len(served.rounds) == 3
    assert all(len(one.running) == 2 for one in served.rounds)
    counted = zip(client.prompts[2:], client.lengths[2:], strict=True)
    assert [length for prompt, length in counted if len(prompt) == 50] == [1, 1, 1]


async def test_the_first_error_of_what_counts_is_kept():
    served, _, _ = await run(CLOSED, fails=lambda number: number == 5)
    assert served.first_error is not None
    served, _, _ = await run(CLOSED, fails=lambda number: number == 0)
    assert served.first_error is None
