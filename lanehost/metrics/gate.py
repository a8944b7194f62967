"""A gate that counts whom it lets by in vain: refusals, those of the gate included.

It stands where both doors, gRPC and HTTP, come in. What never became a request (no such
path, a body that is no JSON) is not counted.
"""

import asyncio
from collections import Counter

from lanehost.door.gate import Gate
from lanehost.door.interface import EventStream
from lanehost.errors import Cancelled, InternalFault, LanehostError
from lanehost.job import Request


class CountingGate(Gate):
    """A `Gate` that counts."""

    def __init__(self, refused: Counter[str]) -> None:
        """Begin shut; `refused` counts requests by class of error."""
        super().__init__()
        self._refused = refused

    async def submit(self, request: Request) -> EventStream:
        """Hand on, and count the refusal if it is one."""
        try:
            return await super().submit(request)
        except BaseException as error:
            self._refused[_name(error)] += 1
            raise


def _name(error: BaseException) -> str:
    """Say what the client is told, in the words of the error tree."""
    match error:
        case LanehostError():
            return type(error).__name__
        case asyncio.CancelledError():
            return Cancelled.__name__
        case _:
            return InternalFault.__name__
