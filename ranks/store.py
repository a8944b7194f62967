"""The rendezvous store of torch.distributed, kept by the master and reached over gRPC.

The master never imports torch and no rank is special (ADR 1). Every wait has a bound.
What torch calls the extended API (append, queues) is not offered, and torch is told so.
"""

import threading
from datetime import timedelta
from typing import Any

import grpc
from google.protobuf.message import Message
from torch.distributed.distributed_c10d import Store

from ranks.errors import GivenUp, RendezvousFailed, RendezvousTimedOut
from ranks.wire import rank_pb2 as pb
from ranks.wire.messages import STORE_METADATA_KEY
from ranks.wire.rank_pb2_grpc import RankServiceStub

# Beyond the wait itself, for the way there and back.
_CALL_MARGIN_S = 5.0


class MasterStore(Store):
    """A `torch.distributed.Store` over the master's Store calls.

    Keep a reference for as long as a process group uses it: torch holds the C++ half only.
    Keys and values are bounded by the master. Values come as bytes or str.
    """

    def __init__(self, channel: grpc.Channel, *, token: str, timeout_s: float) -> None:
        """`timeout_s` bounds every wait that names no bound of its own."""
        super().__init__()
        # The generated stubs are untyped.
        self._stub = RankServiceStub(channel)  # type: ignore[no-untyped-call]
        self._metadata = ((STORE_METADATA_KEY, token),)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._is_given_up = False
        self._calls: set[Any] = set()  # futures of gRPC, which are untyped

    def give_up(self) -> None:
        """End all calls that wait, from any thread, and each later one: with `GivenUp`."""
        with self._lock:
            self._is_given_up = True
            calls = set(self._calls)
        for call in calls:
            call.cancel()

    # The names of the parameters and the types of values are torch's, which its stubs
    # give as str where the C++ side hands bytes.
    def set(self, key: str, value: str | bytes) -> None:
        """Set a key."""
        self._call(self._stub.StoreSet, pb.StoreSetRequest(key=key, value=_as_bytes(value)))

    def get(self, key: str) -> bytes:
        """Wait for a key and return its value."""
        return self._get(key, self._timeout_s)

    def add(self, key: str, value: int) -> int:
        """Add to a counter and return its new value."""
        request = pb.StoreAddRequest(key=key, amount=value)
        return int(self._call(self._stub.StoreAdd, request).value)

    def check(self, keys: list[str]) -> bool:
        """Say whether all keys are there."""
        return bool(self._call(self._stub.StoreCheck, pb.StoreCheckRequest(keys=keys)).present)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are there; `timeout` bounds the wait for each of them."""
        timeout_s = self._timeout_s if timeout is None else timeout.total_seconds()
        for key in keys:
            self._get(key, timeout_s)

    def compare_set(
        self, key: str, expected_value: str | bytes, desired_value: str | bytes
    ) -> bytes:
        """Set a key if it holds what is expected; returns what it then holds."""
        request = pb.StoreCompareSetRequest(
            key=key, expected=_as_bytes(expected_value), desired=_as_bytes(desired_value)
        )
        return bytes(self._call(self._stub.StoreCompareSet, request).value)

    def delete_key(self, key: str) -> bool:
        """Remove a key; says whether it was there."""
        return bool(self._call(self._stub.StoreDelete, pb.StoreDeleteRequest(key=key)).removed)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Wait for keys and return their values."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys: list[str], values: list[str | bytes]) -> None:
        """Set keys, one after the other."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        """Say that append and the queues are not offered."""
        return False

    def set_timeout(self, timeout: timedelta) -> None:
        """Bound the waits that name no bound of their own."""
        self._timeout_s = timeout.total_seconds()

    def _get(self, key: str, timeout_s: float) -> bytes:
        request = pb.StoreGetRequest(key=key, timeout_s=timeout_s)
        return bytes(self._call(self._stub.StoreGet, request, wait_s=timeout_s).value)

    def _call(
        self,
        method: Any,  # a unary call of the stubs, which are untyped
        request: Message,
        *,
        wait_s: float = 0.0,
    ) -> Any:  # what that call answers
        with self._lock:
            if self._is_given_up:
                raise GivenUp("this rank was told to leave, while it formed the group")
            call = method.future(request, timeout=wait_s + _CALL_MARGIN_S, metadata=self._metadata)
            self._calls.add(call)
        try:
            return call.result()
        except grpc.FutureCancelledError as err:
            raise GivenUp("this rank was told to leave, while it formed the group") from err
        except grpc.RpcError as err:
            is_late = err.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            raise (RendezvousTimedOut if is_late else RendezvousFailed)(
                f"{type(request).__name__}: {err.code().name}: {err.details()}"
            ) from err
        finally:
            with self._lock:
                self._calls.remove(call)


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
