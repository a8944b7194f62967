import pytest

from lanehost.chaos.rig import Setup
from lanehost.chaos.table import Fault, Phase
from lanehost.chaos.tour import Tried, pairs_of, tour

SETUP = Setup(serve_args=(), tp=2)


def test_pairs_are_read_in_the_order_of_phases_and_once():
    assert pairs_of("kill/decode,oom/pass,kill/decode") == [
        (Fault.KILL, Phase.DECODE),
        (Fault.OOM, Phase.PASS),
    ]
    assert len(pairs_of("*/*")) == len(Fault) * len(Phase)
    assert {fault for fault, _ in pairs_of("*/idle")} == set(Fault)


@pytest.mark.parametrize("words", ["kill", "kill/never", "flood/idle", "", "/"])
def test_what_is_no_pair_is_named(words):
    with pytest.raises(ValueError, match="is not FAULT/PHASE") as caught:
        pairs_of(words)
    assert repr(words) in str(caught.value)


async def test_a_cell_that_cannot_be_is_told_with_its_reason_and_no_server_is_started():
    told = [one async for one in tour(SETUP, [(Fault.NAN, Phase.IDLE)])]
    assert told == [Tried(fault=Fault.NAN, phase=Phase.IDLE, reason="no step runs")]
    assert told[0].line.split(maxsplit=2) == ["nan", "idle", "cannot be: no step runs"]


def test_a_cell_is_said_to_have_held_or_what_it_broke():
    held = Tried(fault=Fault.KILL, phase=Phase.PASS)
    broken = Tried(fault=Fault.KILL, phase=Phase.PASS, broken=("a", "b"))
    assert (held.line.split()[-1], broken.line.split()[-2:]) == ("held", ["a;", "b"])
