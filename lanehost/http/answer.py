"""The one answer of an HTTP request: what was begun is known, and every send is bounded.

Laws: a response is started once; after a client read nothing for too long, nothing is
sent to it any more.
"""

import asyncio

from starlette.types import Message, Send

from lanehost.errors import Cancelled

# How long a client that does not read may hold up what is sent to it.
WRITE_TIMEOUT_S = 120.0


class ClientStalled(Cancelled):
    """The client reads nothing, and was given up."""


class Answer:
    """An ASGI `send` that remembers what became of it."""

    def __init__(self, send: Send, *, timeout_s: float = WRITE_TIMEOUT_S) -> None:
        """Send nothing yet."""
        self._send = send
        self._timeout_s = timeout_s
        self._has_begun = False
        self._is_stalled = False

    def __repr__(self) -> str:
        return f"<Answer begun={self._has_begun} stalled={self._is_stalled}>"

    @property
    def has_begun(self) -> bool:
        """Whether the status line was sent."""
        return self._has_begun

    async def __call__(self, message: Message) -> None:
        """Send a message.

        Raises:
            ClientStalled: the client read nothing for so long, now or before.
        """
        self._has_begun = True
        stalled = ClientStalled(f"the client read nothing for {self._timeout_s:g} s")
        if self._is_stalled:
            raise stalled
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._send(message)
        except TimeoutError:
            self._is_stalled = True
            raise stalled from None
