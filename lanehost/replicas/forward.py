"""A call to the server of this replica, and its reply as it comes.

Laws: status, headers and body are the server's own; a stream comes event by event, and what a
break leaves of an event is dropped; who stops listening cancels the request.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import httpx

from lanehost.replicas.call import Call, ReplyHead, ReplyLost, ReplyPart, WholeEvents, end_to_end

_CONNECT_TIMEOUT_S = 5.0


def open_client(url: str) -> httpx.AsyncClient:
    """Return a client of the server, without a bound on time or on connections.

    How long a reply may take, and how many there are at once, are the server's own bounds.
    """
    return httpx.AsyncClient(
        base_url=url,
        timeout=httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        trust_env=False,
    )


async def forward(client: httpx.AsyncClient, call: Call) -> AsyncGenerator[ReplyPart, None]:
    """Ask the server; gives the head and then the body, or where it broke off, that it did."""
    request = client.build_request(
        call.method, call.target, headers=list(call.headers), content=call.body
    )
    try:
        response = await client.send(request, stream=True)
        async with aclosing(response):
            head = ReplyHead(
                status=response.status_code, headers=end_to_end(response.headers.multi_items())
            )
            yield head
            async with aclosing(_body(response, head)) as parts:
                async for part in parts:
                    yield part
    except httpx.TransportError as error:
        yield ReplyLost(reason=type(error).__name__)


async def _body(response: httpx.Response, head: ReplyHead) -> AsyncGenerator[bytes, None]:
    if not head.is_stream:
        yield await response.aread()
        return
    events = WholeEvents()
    async for chunk in response.aiter_raw():
        if whole := events.feed(chunk):
            yield whole
    if rest := events.rest():
        yield rest
