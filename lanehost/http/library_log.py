"""What uvicorn and asyncio log, as events of ours.

Left alone, the standard library writes it to standard error as bare lines, between the
JSON of `--log-json`, with messages and traces that may quote a request. Here it becomes
`http_library` with the place that logged it, and the type of the error; the trace of an
error is written as that of any fault.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from lanehost.fault import record_fault

log = structlog.get_logger()

_LIBRARIES = ("uvicorn", "asyncio")


@contextmanager
def library_log() -> Iterator[None]:
    """Take the lines of both libraries within the block."""
    handler = _Handler(logging.WARNING)
    loggers = [logging.getLogger(name) for name in _LIBRARIES]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Log the record without its message."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, asyncio.CancelledError):
            return  # uvicorn's word for a request that was cut off when the server stopped
        place = f"{record.name}:{record.module}:{record.lineno}"
        name = None if error is None else type(error).__qualname__
        log.log(record.levelno, "http_library", place=place, error=name)
        if error is not None and record.name == "asyncio":  # Border has recorded uvicorn's
            record_fault(error)
