"""Where log lines go: a stream that may break, without breaking who logs.

Law: a line that cannot be written is lost, and nothing else is. Standard error may be a
pipe whose reader has gone, or a file on a disk that is full; neither is worth a reply.
"""

from typing import TextIO


class LogSink:
    """Writes to a stream, and counts the lines that it could not write."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream` for as long as it takes anything."""
        self._stream = stream
        self._num_lost = 0

    @property
    def num_lost(self) -> int:
        """Writes that failed."""
        return self._num_lost

    def write(self, text: str) -> int:
        """Write, or lose the text."""
        try:
            return self._stream.write(text)
        except (OSError, ValueError):  # ValueError: the stream was closed
            self._num_lost += 1
            return len(text)

    def flush(self) -> None:
        """Flush, or lose what was not written yet."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self._num_lost += 1
