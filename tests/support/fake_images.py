"""Encoders of arithmetic: what an image's rows are is a function of its digest."""

import asyncio
from typing import TYPE_CHECKING

from lanehost.rank_group.facts import GroupFacts
from lanehost.rank_group.image_interface import ImageOutcome, ImageReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanehost.job import PreparedImage

# Above every token id of the fakes, and small enough for sums.
ROW_BASE = 1_000_003


def image_rows(digest: bytes, num_tokens: int) -> tuple[int, ...]:
    """The rows of an image: numbers that no token has."""
    first = int.from_bytes(digest[:4])
    return tuple(ROW_BASE + (first + at * 31) % 1_000_000 for at in range(num_tokens))


class FakeImages:
    """Implements `lanehost.rank_group.image_interface.RankImages`.

    One image after the other is encoded, within so many `turns` of the loop each, in the order of
    the orders; `fault` says of each what goes wrong. With `is_held` none is, until `release`.
    """

    def __init__(
        self,
        *,
        num_tokens: int = 4,
        room: int = 1 << 30,
        turns: "Callable[[], int]" = lambda: 0,
        fault: "Callable[[PreparedImage], ImageReason | None]" = lambda _: None,
    ) -> None:
        self.num_tokens, self.room, self.turns, self.fault = num_tokens, room, turns, fault
        self.is_held = False
        self.rows: dict[int, tuple[int, ...]] = {}
        self.waiting: dict[int, PreparedImage] = {}
        self.log: list[tuple[str, int]] = []
        self.is_lost = False
        self._dropped: set[int] = set()
        self._last_id = 0
        self._task: asyncio.Task[None] | None = None
        self._tell: Callable[[ImageOutcome], None] = lambda _: None

    def tell(self, on_outcome: "Callable[[ImageOutcome], None]") -> None:
        self._tell = on_outcome

    def encode(self, image_id: int, image: "PreparedImage") -> None:
        assert image_id > self._last_id, "ids of images rise"
        self._last_id = image_id
        self.log.append(("encode", image_id))
        self.waiting[image_id] = image
        held = (len(self.waiting) + len(self.rows)) * self.num_tokens
        assert held <= self.room, "more rows of images than there is room for"
        self.release(is_held=self.is_held)

    def cancel(self, image_id: int) -> None:
        self.log.append(("cancel", image_id))
        if image_id in self.waiting and image_id != next(iter(self.waiting)):
            del self.waiting[image_id]
            self._say(image_id, ImageReason.CANCELLED)

    def drop(self, image_id: int) -> None:
        self.log.append(("drop", image_id))
        if self.rows.pop(image_id, None) is None:
            self._dropped.add(image_id)

    def lose(self) -> None:
        self.is_lost = True

    def release(self, *, is_held: bool = False) -> None:
        """Begin to encode what waits."""
        self.is_held = is_held
        if not is_held and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._encode_all())

    async def _encode_all(self) -> None:
        while self.waiting and not self.is_held:
            image_id, image = next(iter(self.waiting.items()))
            for _ in range(self.turns()):
                await asyncio.sleep(0)
            del self.waiting[image_id]
            if (reason := self.fault(image)) is not None:
                self._say(image_id, reason)
                continue
            if image_id not in self._dropped:
                self.rows[image_id] = image_rows(image.digest, self.num_tokens)
            self._say(image_id)

    def _say(self, image_id: int, reason: ImageReason | None = None) -> None:
        if not self.is_lost:
            message = "" if reason is None else "asked to"
            num_tokens = 0 if reason is not None else self.num_tokens
            self._tell(
                ImageOutcome(
                    image_id=image_id,
                    reason=reason,
                    rank=None if reason is None else 0,
                    message=message,
                    num_tokens=num_tokens,
                )
            )


def fake_images(facts: GroupFacts) -> FakeImages | None:
    """The images of ranks with these facts; None where they take none."""
    if facts.images is None:
        return None
    return FakeImages(num_tokens=facts.images.num_tokens, room=facts.image_cache_tokens)
