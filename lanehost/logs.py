"""Set up the log once, for the whole process: lines on standard error.

Events have fixed names and values as fields. Nothing of a prompt or an image is ever
a field, nor is the message of an error that is not ours: foreign code may quote its input.
"""

import logging
import sys
from typing import TextIO, cast

import structlog

from ranks.log_sink import LogSink


def set_up_logs(*, is_json: bool) -> None:
    """Write events as JSON for machines, or as aligned text for people."""
    renderers: list[structlog.types.Processor]
    if is_json:
        renderers = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        # Never the rich tracebacks: they print local variables, prompts among them.
        plain = structlog.dev.plain_traceback
        colors = sys.stderr.isatty()
        renderers = [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", LogSink(sys.stderr))),
        cache_logger_on_first_use=False,
    )
