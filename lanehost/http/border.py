"""The outermost border of the OpenAI door: every request gets an answer in OpenAI's form.

uvicorn answers what passes its application with a 500 in plain text. Two things would:
a cancel, when the server stops before a request is done, and an error that is no
Exception (a panic of foreign Rust code). Once a response has begun there is no other
status to send; its connection is closed, so that it does not look whole.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lanehost.cancelling import is_cancelling
from lanehost.errors import Draining
from lanehost.fault import record_fault
from lanehost.http.errors import error_response


class Border:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp) -> None:
        """Stand around `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        has_begun = False

        async def note(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, note)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            known = _known(error)
            if has_begun:
                raise
            response = error_response(known)
            response.headers["connection"] = "close"
            await response(scope, receive, send)


def _known(error: BaseException) -> Exception:
    if isinstance(error, asyncio.CancelledError) and is_cancelling():
        return Draining("this server ended before it answered")
    return record_fault(error)
