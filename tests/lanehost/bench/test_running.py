import json
from pathlib import Path

import pytest
import structlog

from lanehost.bench.quality import OWN_TEXT
from lanehost.bench.running import Progress, measured_where, read_text, run_step
from lanehost.bench.step_loop import LoopSettings
from lanehost.errors import RankGroupLost, StartupFailed
from tests.support.bench_client import reply
from tests.support.rank_facts import group_settings
from tests.support.rank_process import CONTEXT_LENGTH, rank_command

LOOP = LoopSettings(
    lane_counts=(1, 3), prompt_tokens=20, num_rounds=2, num_steps=3, num_prefills=2, num_warmup=1
)


@pytest.fixture(autouse=True)
def _quiet_log():
    yield
    structlog.reset_defaults()


def step(behaviour="ok", *, loop=LOOP, tp=1):
    said = []
    settings = group_settings(
        model_path=Path("model"), tp=tp, num_lanes=3, max_step_tokens=64, kv_tokens=3 * 32
    )
    command = rank_command(behaviour)
    return run_step(settings, loop, said.append, command, measure=lambda _ranks: None), said


@pytest.mark.ranks
@pytest.mark.parametrize("tp", [1, 2])
def test_the_step_loop_runs_on_ranks_of_its_own_and_tells_each_kind_of_step(tp):
    report, said = step(tp=tp)
    assert said[1:] == ["1 of 2 rounds", "2 of 2 rounds"]
    told = json.loads(json.dumps(report.told))
    assert told["model"]["world_size"] == tp
    assert [one["name"] for one in told["figures"]] == ["prefill", "decode 1", "decode 3"]
    assert all(one["paired"]["p50"] > 0 for one in told["figures"])
    assert report.lines[0].startswith(f"model, float32 on cpu, weights: stored, {tp} rank")


@pytest.mark.ranks
def test_a_loop_that_is_longer_than_the_context_is_refused_with_both_numbers():
    long = LoopSettings(
        lane_counts=(1,),
        prompt_tokens=20,
        num_rounds=1,
        num_steps=5000,
        num_prefills=1,
        num_warmup=0,
    )
    with pytest.raises(StartupFailed, match=f"take 5020 positions, the model has {CONTEXT_LENGTH}"):
        step(loop=long)


@pytest.mark.ranks
def test_a_rank_that_is_lost_ends_the_loop():
    with pytest.raises(RankGroupLost):
        step("exit-in-step")


def test_progress_is_told_now_and_then_and_not_for_every_reply():
    now_s, said = [0.0], []
    progress = Progress(said.append, 10, clock=lambda: now_s[0])
    for _ in range(3):
        progress(reply(0.0, [1.0, 2.0]))
    assert said == []
    now_s[0] = 2.5
    progress(reply(0.0, [1.0]))
    progress(reply(0.0, [1.0]))
    assert said == ["4 of 10 requests, 7 tokens"]


def test_a_text_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(StartupFailed, match="text cannot be read as text"):
        read_text(path)
    assert read_text() == OWN_TEXT.read_text(encoding="utf-8")


def test_where_a_figure_was_measured_is_told_without_a_name_of_the_machine():
    assert set(measured_where()) == {"machine", "system", "cores", "python", "at"}
