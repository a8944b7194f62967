"""Write a bug of ours into the log, and give the client an id for it.

Law: nothing of a prompt reaches the log this way. A trace is written as the files
and lines of its frames and the types of its errors: no local variables, and no
error messages, since those of foreign code may quote what they were given.
"""

import secrets
import traceback

import structlog

from lanehost.errors import InternalFault

log = structlog.get_logger()


def record_fault(error: BaseException) -> InternalFault:
    """Log the trace of an error, and return what the client may know of it."""
    if isinstance(error, InternalFault):
        return error
    fault = InternalFault(secrets.token_hex(8))
    log.error("internal_fault", record_id=fault.record_id, trace=_trace(error))
    return fault


def _trace(error: BaseException) -> str:
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    return "\n".join(
        "".join(traceback.format_tb(link.__traceback__)) + type(link).__qualname__
        for link in reversed(chain)
    )
