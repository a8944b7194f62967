"""Bring what the ranks say into the engine's inbox: epoch after epoch, step after step.

Law: what is told of an epoch is told in the order GroupFormed (but for the first, which the
engine begins with), StepDone any number of times, GroupLost; and nothing of one comes after
a word of the next.
"""

from lanehost.engine.backend import Backend, Epochs
from lanehost.engine.inbox import GroupFormed, GroupLost, Inbox, PumpFailed, RanksGivenUp, StepDone
from lanehost.errors import RankGroupLost


async def pump_epochs(epochs: Epochs, inbox: Inbox) -> None:
    """Go on until the ranks are given up, or cancelled."""
    backend = epochs.first
    try:
        while True:
            await _pump_outcomes(backend, inbox)
            backend = await epochs.later.next_backend()
            inbox.put(GroupFormed(backend))
    except RankGroupLost as error:
        inbox.put(RanksGivenUp(error))
    except Exception as bug:  # noqa: BLE001 - handed to the loop, which raises it
        inbox.put(PumpFailed(bug))


async def _pump_outcomes(backend: Backend, inbox: Inbox) -> None:
    try:
        while True:
            inbox.put(StepDone(await backend.next_outcome()))
    except RankGroupLost as error:
        inbox.put(GroupLost(error))
