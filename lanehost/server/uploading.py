"""Take in an image that a client sends in pieces, bounded.

Pieces are asked for one by one, so a client sends no faster than they are taken. What bounds an
upload: its own bytes, its time, and the bytes of all that come in at once, beyond which the next
is told to come back.
"""

import asyncio
from collections.abc import AsyncIterator

from lanehost.errors import DeadlinePassed, ImageRefused, Overloaded
from lanehost.server import codec
from lanehost.settings import MAX_MESSAGE_BYTES
from lanehost.v1 import inference_pb2 as pb

READ_TIMEOUT_S = 60.0
_RETRY_AFTER_S = 1.0


class UploadReader:
    """Reads uploads, all of them together within one bound; one event loop owns it."""

    def __init__(
        self, *, max_bytes: int = MAX_MESSAGE_BYTES, timeout_s: float = READ_TIMEOUT_S
    ) -> None:
        """Hold nothing yet.

        Args:
            max_bytes: The most bytes of all uploads together.
            timeout_s: The most time for one to arrive.
        """
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._num_bytes = 0

    def __repr__(self) -> str:
        return f"<UploadReader {self._num_bytes}/{self._max_bytes} bytes>"

    async def read(self, pieces: AsyncIterator[bytes], *, limit: int) -> bytes:
        """Return the whole file.

        Args:
            pieces: The messages, as bytes.
            limit: The most bytes of the file.

        Raises:
            ImageRefused: it is longer; the rest is not read.
            InvalidRequest: a piece is no such message.
            DeadlinePassed: it did not arrive in time.
            Overloaded: with all others it is too much at once.
        """
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._read(pieces, parts, limit=limit)
            return b"".join(parts)
        except TimeoutError:
            raise DeadlinePassed("upload") from None
        finally:
            self._num_bytes -= sum(map(len, parts))

    async def _read(self, pieces: AsyncIterator[bytes], parts: list[bytes], *, limit: int) -> None:
        num_bytes = 0
        async for wire in pieces:
            parts.append(codec.parse(pb.UploadImageRequest, wire).data)
            num_bytes += len(parts[-1])
            self._num_bytes += len(parts[-1])
            if num_bytes > limit:
                message = f"has at least {num_bytes} bytes, limit {limit} (--max-image-bytes)"
                raise ImageRefused("images[1]", message)
            if self._num_bytes > self._max_bytes:
                raise Overloaded(
                    f"uploads in progress have {self._num_bytes} bytes, limit {self._max_bytes}",
                    retry_after_s=_RETRY_AFTER_S,
                )
