"""What is rigged runs in tests/chaos; here is how a server for it is made."""

import os

from lanehost.chaos.rig import Setup, starting
from ranks.fault_orders import VARIABLE


async def test_a_server_gets_a_folder_for_orders_that_is_gone_afterwards():
    async with starting(Setup(serve_args=("--tp", "1"), tp=1)) as (served, orders):
        folder = orders.environment[VARIABLE]
        assert os.path.isdir(folder)  # noqa: PTH112, ASYNC240 - at once
        assert served._environment == orders.environment
        assert served._args == ("--tp", "1", "--port", "0", "--http-port", "0")
    assert not os.path.exists(folder)  # noqa: PTH110, ASYNC240 - at once
