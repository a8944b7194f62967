"""The thread of a rank that encodes images, beside the one that computes steps.

Laws: until it is closed every EncodeImage is answered exactly once, in the order of the orders,
whatever becomes of it: encoded, failed, cancelled, too many, or of an epoch that is over. What is
cancelled or dropped before it was begun is never begun; the image that is being encoded when that
comes goes on, and no rows are kept of one that was dropped. An image that fails harms no other.
Nothing of an epoch is kept once `let_go` has returned: the next one starts without rows. Nobody
waits here but the thread itself, and `close` for a bounded time.
"""

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import structlog

from ranks.abort import Abort
from ranks.errors import MasterLost
from ranks.images.encoder import BadImage, EncodedImage, Encoder, prepare_thread
from ranks.images.store import ImageStore
from ranks.wire.image_messages import (
    CancelImage,
    DropImage,
    EncodeImage,
    ImageDone,
    ImageFault,
    ImageOrder,
)

log = structlog.get_logger()

# The master bounds what it asks for as well, and lower.
MAX_WAITING = 64
# An image may take minutes; the process does not wait for it (`ranks.guard.end_process`).
_END_TIMEOUT_S = 0.5

Answer = Callable[[ImageDone], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Epoch:
    """What images of one epoch need."""

    number: int
    abort: Abort
    store: ImageStore
    encoder: Encoder


@dataclass(slots=True, kw_only=True)
class _Asked:
    """An image that waits for its turn; one that was refused has no `work` any more."""

    epoch: int
    image_id: int
    answer: Answer = field(repr=False)
    work: EncodeImage | None
    refusal: BadImage | None = None

    def refuse(self, fault: ImageFault, message: str) -> None:
        """Have it answered with a fault in its turn; its pixels are let go at once."""
        self.work, self.refusal = None, BadImage(fault, message)


class EncoderThread:
    """Begins with the first image that is ordered, and outlives epochs."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._changed = threading.Condition()
        self._waiting: deque[_Asked] = deque()
        self._num_held = 0
        self._last_id = 0
        self._epoch: _Epoch | None = None
        self._thread: threading.Thread | None = None
        self._is_ending = False

    def begin(self, epoch: int, store: ImageStore, encoder: Encoder, abort: Abort) -> None:
        """Encode images of this epoch from now on, until the abort or `let_go`."""
        with self._changed:
            self._epoch = _Epoch(number=epoch, abort=abort, store=store, encoder=encoder)
            self._last_id = 0

    def take(self, order: ImageOrder, answer: Answer) -> None:
        """Take an order; returns at once. `answer` is called from the thread for images."""
        with self._changed:
            match order.work:
                case EncodeImage() as work:
                    self._take_image(order.epoch, work, answer)
                case CancelImage(image_id=image_id):
                    self._refuse(order.epoch, image_id, "it was cancelled")
                case DropImage(image_id=image_id):
                    self._refuse(order.epoch, image_id, "it was dropped")
                    if (epoch := self._current(order.epoch)) is not None:
                        epoch.store.drop(image_id)

    def let_go(self) -> None:
        """Forget the epoch and all its rows; what waits is answered, and nothing of it done."""
        with self._changed:
            epoch, self._epoch = self._epoch, None
            for asked in self._waiting:
                self._turn_away(asked, ImageFault.CANCELLED, "its epoch is over")
        if epoch is not None:
            epoch.store.close()

    def close(self) -> None:
        """End the thread, after the image that it encodes; waits a bounded time."""
        self.let_go()
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_END_TIMEOUT_S)

    def _take_image(self, number: int, work: EncodeImage, answer: Answer) -> None:
        if self._is_ending:
            return
        asked = _Asked(epoch=number, image_id=work.image_id, answer=answer, work=work)
        self._waiting.append(asked)
        self._num_held += 1
        epoch = self._current(number)
        if epoch is None:
            self._turn_away(asked, ImageFault.CANCELLED, f"epoch {number} is over")
        elif work.image_id <= self._last_id:
            self._turn_away(asked, ImageFault.FAILED, f"the last image was {self._last_id}")
        elif self._num_held > MAX_WAITING:
            self._turn_away(asked, ImageFault.BUSY, f"{MAX_WAITING} images wait")
        else:
            self._last_id = work.image_id
            epoch.store.expect(work.image_id)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="images", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _current(self, number: int) -> _Epoch | None:
        epoch = self._epoch
        is_over = epoch is None or epoch.number != number or epoch.abort.is_set
        return None if is_over else epoch

    def _refuse(self, number: int, image_id: int, message: str) -> None:
        epoch = self._current(number)
        for asked in self._waiting:
            if (asked.epoch, asked.image_id) == (number, image_id):
                self._turn_away(asked, ImageFault.CANCELLED, message)
                if epoch is not None:
                    epoch.store.drop(image_id)

    def _turn_away(self, asked: _Asked, fault: ImageFault, message: str) -> None:
        if asked.work is not None:
            asked.refuse(fault, message)
            self._num_held -= 1

    def _run(self) -> None:
        prepare_thread()
        try:
            while (asked := self._next()) is not None:
                began_ns = time.perf_counter_ns()
                done = self._try(asked)
                asked.answer(_told(asked, done, time.perf_counter_ns() - began_ns))
        except MasterLost as err:
            # The main thread hears of it too.
            log.debug("images_end", reason=str(err))

    def _next(self) -> _Asked | None:
        with self._changed:
            while not self._is_ending:
                if self._waiting:
                    asked = self._waiting.popleft()
                    self._num_held -= asked.work is not None
                    return asked
                self._changed.wait()
        return None

    def _try(self, asked: _Asked) -> EncodedImage | BadImage:
        if asked.work is None:
            assert asked.refusal is not None
            return asked.refusal
        epoch = self._current(asked.epoch)
        if epoch is None:
            return BadImage(ImageFault.CANCELLED, "its epoch is over")
        done = _encode(epoch.encoder, asked.work)
        if isinstance(done, BadImage):
            epoch.store.drop(asked.image_id)
        else:
            epoch.store.put(asked.image_id, done.rows)
        return done


def _encode(encoder: Encoder, work: EncodeImage) -> EncodedImage | BadImage:
    try:
        return encoder.encode(work)
    except BadImage as err:
        return err
    except Exception as err:  # noqa: BLE001 - logged without its words
        # The outermost border of this thread: no image is worth a rank.
        log.warning("image_failed", image_id=work.image_id, **_seen(err))
        return BadImage(ImageFault.FAILED, f"{type(err).__name__} while it was encoded")


def _seen(err: Exception) -> dict[str, str]:
    # Not the message: foreign code may quote what it was given.
    return {
        "error": type(err).__name__,
        "trace": "".join(traceback.format_tb(err.__traceback__)),
    }


def _told(asked: _Asked, done: EncodedImage | BadImage, took_ns: int) -> ImageDone:
    told = ImageDone(epoch=asked.epoch, image_id=asked.image_id, took_ns=took_ns)
    if isinstance(done, BadImage):
        return replace(told, fault=done.fault, message=str(done))
    return replace(told, num_tokens=done.rows.shape[0], rows_digest=done.digest)
