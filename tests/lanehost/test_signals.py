import os
import signal

import pytest

from lanehost.signals import StopSignals
from tests.support.fake_engine import settle_loop


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_asks_and_every_later_one_insists(number):
    calls = []
    with StopSignals(
        on_first=lambda: calls.append("first"), on_second=lambda: calls.append("second")
    ) as signals:
        for _ in range(3):
            os.kill(os.getpid(), number)
            await settle_loop()
        assert signals.num_received == 3
    assert calls == ["first", "second", "second"]


async def test_the_signals_are_given_back():
    with StopSignals(on_first=lambda: None, on_second=lambda: None):
        pass
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
