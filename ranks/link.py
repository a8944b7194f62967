"""The rank's end of its one stream to the master.

Laws: messages go out in the order in which they were sent; nothing is lost silently:
when the stream ends, `receive` raises `MasterLost` with the reason, after all that
came before it. Both queues are bounded: a rank that lags makes gRPC push back. Leave is told
at once by the thread that reads, and takes its turn all the same. Works on files and images take
no turn among the others: they are for other threads; one that the reading thread answers itself
waits for no room, so that nothing delays Leave. But DropImage takes its turn among the plans: those
that were written before it find the rows. A rank whose stream ended on its own is gone within
`LINGER_S`, whatever its main thread waits for.
"""

import contextlib
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import structlog

from ranks.errors import BadMessage, MasterLost
from ranks.guard import EXIT_MASTER_GONE
from ranks.wire.codec import decode_master_message, encode_rank_message
from ranks.wire.file_messages import FileDone, FileOrder
from ranks.wire.image_messages import DropImage, ImageDone, ImageOrder
from ranks.wire.messages import (
    SERVICE_NAME,
    Heartbeat,
    Leave,
    MainMessage,
    MasterMessage,
    RankMessage,
)
from ranks.wire.tls import channel_credentials, read_certificates
from ranks.wire.transport import CLIENT_OPTIONS

log = structlog.get_logger()

_CONNECT = f"/{SERVICE_NAME}/Connect"
_MAX_QUEUED = 256
_DIAL_TIMEOUT_S = 20.0
_SEND_TIMEOUT_S = 30.0
_LAST_WORDS_TIMEOUT_S = 2.0
# In the queue: there is a refusal to send.
_LOOK = b""
OnFile = Callable[[FileOrder, Callable[[FileDone], None]], None]
OnImage = Callable[[ImageOrder, Callable[[ImageDone], None]], None]

# From the end of the stream to that of the process.
LINGER_S = 2.0


def open_channel(master: str, tls: Path | None = None) -> grpc.Channel:
    """Open a channel to the master at HOST:PORT; `tls` is the folder of this node's certificates.

    Raises:
        BadCertificates: The folder cannot be used.
    """
    if tls is None:
        return grpc.insecure_channel(master, options=CLIENT_OPTIONS)
    credentials = channel_credentials(read_certificates(tls))
    return grpc.secure_channel(master, credentials, options=CLIENT_OPTIONS)


def leave_soon() -> None:
    """End this process in a moment, whatever its main thread does then.

    It may be in a collective that nobody will end: the fellow is cut off as well.
    """

    def end() -> None:
        log.error("rank_lingers", reason="its stream ended", waited_s=LINGER_S)
        os._exit(EXIT_MASTER_GONE)

    timer = threading.Timer(LINGER_S, end)
    timer.daemon = True
    timer.start()


class MasterLink:
    """The stream; a context manager that says its last words and closes."""

    def __init__(
        self,
        channel: grpc.Channel,
        *,
        on_leave: Callable[[int], None],
        on_file: OnFile,
        on_image: OnImage,
        on_lost: Callable[[], None],
    ) -> None:
        """Take a channel that the caller closes.

        Args:
            channel: To the master.
            on_leave: The reading thread tells it of Leave.
            on_file: The reading thread hands works on files over, with what takes the answer;
                it must not wait.
            on_image: As `on_file`, with works on images.
            on_lost: Called from that thread when the stream has ended and nobody closed it.
        """
        self._channel = channel
        self._on_leave = on_leave
        self._on_file = on_file
        self._on_image = on_image
        self._on_lost = on_lost
        self._is_closing = False
        self._outgoing: queue.Queue[bytes | None] = queue.Queue(_MAX_QUEUED)
        # Beside the queue, for they may not wait for room; bounded by what the master asks for.
        self._refusals: deque[bytes] = deque()
        self._incoming: queue.Queue[MainMessage | MasterLost] = queue.Queue(_MAX_QUEUED)
        self._receiver = threading.Thread(target=self._receive_all, name="link", daemon=True)

    def __enter__(self) -> Self:
        """Dial; raises MasterLost when nobody answers."""
        try:
            grpc.channel_ready_future(self._channel).result(timeout=_DIAL_TIMEOUT_S)
        except grpc.FutureTimeoutError as err:
            raise MasterLost(f"no answer from the master within {_DIAL_TIMEOUT_S} s") from err
        self._receiver.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the stream after all that was sent; waits a bounded time for the master to see it."""
        self._is_closing = True
        with contextlib.suppress(queue.Full):
            self._outgoing.put(None, timeout=_LAST_WORDS_TIMEOUT_S)
        self._receiver.join(timeout=_LAST_WORDS_TIMEOUT_S)

    def send(self, message: RankMessage) -> None:
        """Queue a message.

        Raises:
            MasterLost: The master has taken nothing for a long while.
        """
        try:
            self._outgoing.put(encode_rank_message(message), timeout=_SEND_TIMEOUT_S)
        except queue.Full as err:
            raise MasterLost(f"the master took nothing for {_SEND_TIMEOUT_S} s") from err

    def _answer(self, done: FileDone | ImageDone) -> None:
        """Queue what became of a work; the reading thread, which refuses some, waits for no room.

        Raises:
            MasterLost: The master has taken nothing for a long while.
        """
        if threading.current_thread() is not self._receiver:
            self.send(done)
            return
        self._refusals.append(encode_rank_message(done))
        with contextlib.suppress(queue.Full):
            self._outgoing.put_nowait(_LOOK)

    def offer(self, message: Heartbeat) -> None:
        """Queue a message if nothing else waits; never blocks."""
        if self._outgoing.empty():
            with contextlib.suppress(queue.Full):
                self._outgoing.put_nowait(encode_rank_message(message))

    def receive(self, *, timeout_s: float | None = None) -> MainMessage | None:
        """Wait for the next message; None when none came in time.

        Raises:
            MasterLost: The stream ended; every later call raises it as well.
        """
        try:
            message = self._incoming.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(message, MasterLost):
            self._incoming.put(message)
            raise message
        return message

    def _receive_all(self) -> None:
        connect: grpc.StreamStreamMultiCallable[bytes, bytes] = self._channel.stream_stream(
            _CONNECT
        )
        end = MasterLost("the thread that reads the stream failed; the log says why")
        try:
            call = connect(self._requests())
            end = self._receive_from(call)
        finally:
            # Whatever happened: who waits in `receive` must hear that nothing more comes.
            log.debug("stream_ended", reason=str(end))
            if not self._is_closing:
                self._on_lost()
            self._incoming.put(end)

    def _receive_from(
        self, call: Any
    ) -> MasterLost:  # a call that is an iterator, for which grpc has no public name
        """Queue all messages of a call; returns why it ended."""
        try:
            for payload in call:
                self._take(decode_master_message(payload))
        except grpc.RpcError as err:
            return MasterLost(f"{err.code().name}: {err.details()}")
        except BadMessage as err:
            call.cancel()
            return MasterLost(f"the master sent {err}")
        return MasterLost("the master closed the stream")

    def _take(self, message: MasterMessage) -> None:
        if isinstance(message, FileOrder):
            # Not behind the steps that are before it: somebody waits for that file.
            self._on_file(message, self._answer)
            return
        if isinstance(message, ImageOrder) and not isinstance(message.work, DropImage):
            self._on_image(message, self._answer)
            return
        if isinstance(message, Leave):
            self._on_leave(message.epoch)
        self._incoming.put(message)

    def _requests(self) -> Iterator[bytes]:
        # gRPC reads this from a thread of its own; None ends our half of the stream.
        payload: bytes | None = _LOOK
        while payload is not None:
            payload = self._outgoing.get()
            if payload:
                yield payload
            while self._refusals:
                yield self._refusals.popleft()
