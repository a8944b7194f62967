"""The choreography itself is run by tests/chaos; here is what of it is pure."""

import pytest

from lanehost.chaos.cells import check_can_be, needs_own_server
from lanehost.chaos.table import Fault, Phase


def test_a_cell_that_cannot_be_is_refused_with_its_reason():
    check_can_be(Fault.KILL, Phase.IDLE)
    with pytest.raises(ValueError, match="nan in idle cannot be: no step runs"):
        check_can_be(Fault.NAN, Phase.IDLE)


def test_whatever_ends_a_server_or_is_of_its_start_has_one_of_its_own():
    assert not needs_own_server(Fault.KILL, Phase.DECODE)
    assert needs_own_server(Fault.TERM, Phase.DECODE)
    assert needs_own_server(Fault.KILL_MASTER, Phase.IDLE)
    assert needs_own_server(Fault.KILL, Phase.LOAD)
    assert needs_own_server(Fault.KILL, Phase.DRAIN)
