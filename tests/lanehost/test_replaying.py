from pathlib import Path

import pytest

from lanehost.recorder.records import Closed, Cut, GroupWasLost
from lanehost.recorder.replay import Replayed
from lanehost.recorder.story import Difference
from lanehost.recorder.trail import Trail
from lanehost.replaying import REPORT_INTERVAL_S, Progress, ranks_of, tell
from tests.support.fake_engine import Clock
from tests.support.trails import header, write_file

LOST = GroupWasLost(at_ns=1, epoch=1, rank=0, reason="rank 0 is gone")


def test_ranks_are_like_those_of_the_trail_unless_told_otherwise():
    settings = ranks_of(header(), model=None, tp=None)
    facts = header().facts
    assert (settings.model_path, settings.tp) == (Path("/models/m"), facts.world_size)
    assert (settings.num_lanes, settings.kv_tokens) == (facts.num_lanes, facts.kv_tokens)
    assert (settings.block_size, settings.max_step_tokens) == (4, 16)
    rounded = ranks_of(header(weights="int4"), model=None, tp=None)
    assert (settings.weights, rounded.weights) == ("auto", "int4")
    other = ranks_of(header(), model=Path("/here"), tp=2)
    assert (other.model_path, other.tp) == (Path("/here"), 2)


@pytest.fixture
def trail(tmp_path):
    return Trail(write_file(tmp_path / "trail", [header()]))


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (None, ["the trail stops in mid-run"]),
        (Closed(at_ns=1), []),
        (Cut(at_ns=1, reason="full"), ["recording stopped before the run ended: full"]),
        (LOST, ["the run ended with the loss of its ranks: rank 0 is gone"]),
    ],
)
def test_an_equal_replay_says_how_much_it_was_and_how_the_trail_ends(trail, end, said):
    replayed = Replayed(num_steps=3, num_tokens=40, end=end)
    assert tell(replayed, trail, is_whole=True) == ["EQUAL: 3 steps, 40 tokens", *said]
    assert tell(replayed, trail, is_whole=False) == ["EQUAL: 3 steps, 40 tokens"]


def test_an_equal_replay_says_how_many_steps_it_left_out(trail):
    replayed = Replayed(num_steps=3, num_tokens=40, num_left_out=2, end=Closed(at_ns=1))
    said = "left out: 2 steps that failed, or were skipped behind one"
    assert tell(replayed, trail, is_whole=True) == ["EQUAL: 3 steps, 40 tokens", said]


def test_a_difference_is_all_that_is_said(trail):
    difference = Difference(what="the plan", recorded="run", got="refused", step_id=4)
    replayed = Replayed(num_steps=3, difference=difference)
    assert tell(replayed, trail, is_whole=True) == [
        "DIFFERS after 3 equal steps. step 4: the plan: recorded run, got refused"
    ]


def test_progress_is_told_now_and_then():
    clock, said = Clock(), []
    progress = Progress(said.append, clock=clock)
    for number in range(1, 9):
        clock.now_s += REPORT_INTERVAL_S / 4
        progress(number)
    assert said == [f"lanehost: {number} steps are equal so far" for number in (4, 8)]


def test_what_would_move_a_cursor_is_escaped(tmp_path):
    path = tmp_path / "run.000001.trail"
    trail = Trail(write_file(path, [header(), Cut(at_ns=1, reason="\x1b]0;pwn\x07\n")]))
    replayed = Replayed(num_steps=1, num_tokens=2, end=Cut(at_ns=1, reason="\x1b]0;pwn\x07\n"))
    text = "".join(tell(replayed, trail, is_whole=True))
    assert text.isprintable()
    assert "\\x1b]0;pwn\\x07\\n" in text
