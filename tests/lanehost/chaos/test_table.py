import pytest

from lanehost.chaos.table import AT_RANDOM, START, Fault, Impossible, Law, Phase, cell


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("phase", Phase)
def test_every_cell_has_its_law_or_the_reason_why_it_cannot_be(fault, phase):
    found = cell(fault, phase)
    assert isinstance(found, Law) or (isinstance(found, Impossible) and found.reason)


def test_nothing_that_ends_a_rank_at_the_start_is_survived_and_everything_later_is():
    laws = {phase: cell(Fault.KILL, phase) for phase in Phase}
    assert {phase for phase in Phase if laws[phase] is Law.START_FAILS} == set(START)
    assert {laws[phase] for phase in Phase if phase not in START} == {Law.NEW_EPOCH}


def test_what_is_done_at_random_can_be_done_to_a_running_step():
    assert all(isinstance(cell(fault, Phase.DECODE), Law) for fault in AT_RANDOM)
    assert Fault.KILL_MASTER not in AT_RANDOM
    assert Fault.TERM not in AT_RANDOM
