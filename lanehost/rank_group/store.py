"""The rendezvous store: how the ranks of a process group find each other.

Laws: every wait has a bound; keys, values and waiters are bounded in number and size;
what one rank sets, every other sees at once; of an epoch that is over nothing is kept, and
nobody waits for it. Only the event loop touches it.

It knows no torch and no gRPC: the rank server carries it over the wire (ADR 1).
"""

import asyncio
import re

from lanehost.errors import InvalidRequest
from ranks.wire.messages import FOUND_KEY, OFFER_KEY

MAX_KEYS = 4096
MAX_KEY_BYTES = 512
MAX_VALUE_BYTES = 1 << 20
MAX_WAITERS = 1024
MAX_WAIT_S = 300.0
# What ranks put before the keys of an epoch; twelve digits are more than there are epochs.
_EPOCH_OF = re.compile(r"epoch(\d{1,12})/")


class RendezvousStore:
    """Keys to bytes, with a waiting get."""

    def __init__(self) -> None:
        """Start empty."""
        self._values: dict[str, bytes] = {}
        self._waiters: dict[asyncio.Future[bytes], str] = {}
        self._last_over = 0

    def __len__(self) -> int:
        """Keys that are set."""
        return len(self._values)

    @property
    def num_waiters(self) -> int:
        """Calls of `get` that wait now."""
        return len(self._waiters)

    def end_epoch(self, epoch: int) -> None:
        """Forget the keys of this epoch and of those before; who waits for one is told."""
        self._last_over = max(self._last_over, epoch)
        for key in [key for key in self._values if self._is_over(key)]:
            del self._values[key]
        for waiter, key in self._waiters.items():
            if self._is_over(key) and not waiter.done():
                waiter.set_exception(self._over(key))

    def forget_rank(self, rank: int) -> None:
        """Forget what a former life of this rank told the others about memory to share."""
        for key in (OFFER_KEY, FOUND_KEY):
            self.delete(key.format(rank=rank))

    def set(self, key: str, value: bytes) -> None:
        """Set a key, and wake who waits for it.

        Raises:
            InvalidRequest: A bound is passed; nothing is changed.
        """
        if self._is_over(key):
            raise self._over(key)
        _check_size("key", len(key.encode()), MAX_KEY_BYTES)
        _check_size("value", len(value), MAX_VALUE_BYTES)
        if key not in self._values and len(self._values) >= MAX_KEYS:
            raise InvalidRequest("key", f"there are {len(self._values)} keys, limit {MAX_KEYS}")
        self._values[key] = value
        for waiter, wanted in self._waiters.items():
            if wanted == key and not waiter.done():
                waiter.set_result(value)

    async def get(self, key: str, *, timeout_s: float) -> bytes:
        """Wait for a key and return its value.

        Raises:
            InvalidRequest: The bound is not a time, or too many wait already.
            TimeoutError: The key was not set in time.
        """
        if not 0 <= timeout_s <= MAX_WAIT_S:
            raise InvalidRequest("timeout_s", f"is {timeout_s}, allowed is 0 to {MAX_WAIT_S}")
        if self._is_over(key):
            raise self._over(key)
        if key in self._values:
            return self._values[key]
        if len(self._waiters) >= MAX_WAITERS:
            raise InvalidRequest("key", f"{len(self._waiters)} calls wait, limit {MAX_WAITERS}")
        waiter: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = key
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter
        finally:
            del self._waiters[waiter]

    def add(self, key: str, amount: int) -> int:
        """Add to a counter, which starts at 0, and return its new value.

        Raises:
            InvalidRequest: The key holds something that is no number, or a bound is passed.
        """
        held = self._values.get(key, b"0")
        try:
            value = int(held) + amount
        except ValueError as err:
            raise InvalidRequest("key", f"{key!r} holds {len(held)} bytes, no counter") from err
        self.set(key, str(value).encode())
        return value

    def compare_set(self, key: str, *, expected: bytes, desired: bytes) -> bytes:
        """Set a key if it holds `expected`; empty also means that it is not there.

        Returns what the key then holds, empty when it is not there.

        Raises:
            InvalidRequest: A bound is passed; nothing is changed.
        """
        held = self._values.get(key, b"")
        if held != expected:
            return held
        self.set(key, desired)
        return desired

    def check(self, keys: list[str]) -> bool:
        """Say whether all keys are there."""
        return all(key in self._values for key in keys)

    def delete(self, key: str) -> bool:
        """Remove a key; says whether it was there."""
        return self._values.pop(key, None) is not None

    def _is_over(self, key: str) -> bool:
        epoch = _EPOCH_OF.match(key)
        return epoch is not None and int(epoch[1]) <= self._last_over

    def _over(self, key: str) -> InvalidRequest:
        return InvalidRequest("key", f"{key!r} is of an epoch that is over")


def _check_size(field: str, have: int, limit: int) -> None:
    if have > limit:
        raise InvalidRequest(field, f"has {have} bytes, limit {limit}")
