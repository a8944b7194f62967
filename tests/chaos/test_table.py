"""The table of faults and phases, cell by cell, on real servers with a tiny model.

Those that run by default are few, for time; `pytest -m soak tests/chaos` tries every cell.
"""

import pytest

from lanehost.chaos.cells import needs_own_server, try_cell, try_running
from lanehost.chaos.rig import Setup, rigged
from lanehost.chaos.table import Fault, Impossible, Phase, cell
from tests.support.tiny_served import write_tiny_folder

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(1800)]
CELLS = [
    (fault, phase)
    for phase in Phase
    for fault in Fault
    if not isinstance(cell(fault, phase), Impossible)
]
ALONE = [one for one in CELLS if needs_own_server(*one)]
TOGETHER = {
    phase: [fault for fault, its in CELLS if its is phase and not needs_own_server(fault, its)]
    for phase in Phase
}


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    folder = write_tiny_folder(tmp_path_factory.mktemp("tiny"))
    limits = "--stall-timeout 2 --load-timeout 60 --drain-timeout 120 --max-restarts 16"
    args = f"--model {folder} --tp 2 --dtype float32 --threads 1 {limits}"
    return Setup(serve_args=tuple(args.split()), tp=2)


async def broken_in(setup, phase, faults):
    """Try cells one after the other on one server; gives the laws that each has broken."""
    async with rigged(setup) as rig:
        broken = {fault.value: await try_running(rig, fault, phase) for fault in faults}
        code = await rig.served.end(within_s=60)
    return {fault: laws for fault, laws in broken.items() if laws}, code


async def test_a_server_holds_the_laws_of_a_killed_rank_no_memory_and_corrupt_logits(setup):
    faults = [Fault.KILL, Fault.NAN, Fault.OOM]
    assert await broken_in(setup, Phase.DECODE, faults) == ({}, 0)


@pytest.mark.soak
@pytest.mark.parametrize("phase", [phase for phase in Phase if TOGETHER[phase]])
async def test_a_server_that_runs_holds_the_law_of_every_cell(setup, phase):
    assert await broken_in(setup, phase, TOGETHER[phase]) == ({}, 0)


@pytest.mark.soak
@pytest.mark.parametrize(("fault", "phase"), ALONE)
async def test_a_server_that_starts_or_ends_holds_the_law_of_every_cell(setup, fault, phase):
    assert await try_cell(fault, phase, setup) == []
