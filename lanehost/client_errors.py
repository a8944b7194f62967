"""What a client raises: the status of a call, typed by who must act.

ClientError
├── BadRequest         change the request; `field` names what is wrong
├── KeyRefused         send a key that the server knows
├── TooLong            the request can never fit; `have` and `limit` are the numbers
├── NotSupported       this server does not have it; `field` names what
├── StreamUnknown      there is nothing to resume: never accepted, not yours, or too long ago
├── UploadUnknown      there is no such upload: never made, not yours, or too long ago
├── IndexOutOfRange    the stream has no such token yet; `have` and `limit` are the numbers
├── StreamTakenOver    another call has resumed the stream, and has the rest
├── ServerBusy         come back after `retry_after_s`
├── ServerUnavailable  the server loads, ends or lost its ranks; come back after `retry_after_s`
│   └── ServerLoading  it is still loading its model
├── Unreachable        nobody answers at this address
├── ConnectionLost     the server ended during the reply
├── DeadlineExceeded   allow more time; `phase` says where it went, when the server had the time to
├── CallCancelled      the call was cancelled, here or there
├── ReplyCorrupt       the model gave logits that are not numbers
├── RequestPoisoned    do not send it again: the server's ranks were lost by it alone
├── StepFailed         the ranks could not run this request, even alone
├── MessageTooLarge    gRPC itself refused the message or the call: no job was made
└── ServerFault        a bug of the server; `record_id` is in its log
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

_DETAILS_KEY = "grpc-status-details-bin"
_DOMAIN = "lanehost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How a call ended: `facts` are the server's own, empty where gRPC made the status.

    `reason` is the word that the server has for it. `has_begun` says that events of a
    streamed reply had come before.
    """

    code: grpc.StatusCode
    message: str
    reason: str = ""
    has_begun: bool = False
    is_from_lanehost: bool = False
    facts: Mapping[str, str] = field(default_factory=dict[str, str])
    retry_after_s: float = 0.0


class ClientError(Exception):
    """A call failed; `code` is its gRPC status, `message` what the server says."""

    def __init__(self, status: Status) -> None:
        """Keep the status."""
        super().__init__(status.message)
        self.code = status.code
        self.message = status.message


class BadRequest(ClientError):
    """The request is wrong: change `field`, which is in the words of the wire."""

    def __init__(self, status: Status) -> None:
        """Keep the field."""
        super().__init__(status)
        self.field = status.facts["field"]


class KeyRefused(ClientError):
    """The server wants a key that it knows: no other call will do better without one."""


class NotSupported(ClientError):
    """The server does not have what `field` asks for; None when it lacks the whole method."""

    def __init__(self, status: Status) -> None:
        """Keep the field."""
        super().__init__(status)
        self.field = status.facts.get("field")


class TooLong(ClientError):
    """The request can never fit: `have` against a `limit`."""

    def __init__(self, status: Status) -> None:
        """Keep both numbers."""
        super().__init__(status)
        self.have = int(status.facts["have"])
        self.limit = int(status.facts["limit"])


class StreamUnknown(ClientError):
    """There is nothing to resume under this id: never accepted, of another key, or too long ago."""


class UploadUnknown(ClientError):
    """No image is uploaded under this id: never, of another key, or too long ago."""


class IndexOutOfRange(ClientError):
    """The stream has `limit` tokens so far, and was to go on at `have`."""

    def __init__(self, status: Status) -> None:
        """Keep both numbers."""
        super().__init__(status)
        self.have = int(status.facts["have"])
        self.limit = int(status.facts["limit"])


class StreamTakenOver(ClientError):
    """Another call has resumed the stream: what comes of it comes there."""


class ServerBusy(ClientError):
    """The line is full: come back after `retry_after_s`."""

    def __init__(self, status: Status) -> None:
        """Keep the time."""
        super().__init__(status)
        self.retry_after_s = status.retry_after_s


class ServerUnavailable(ClientError):
    """The server loads, ends or lost its ranks: come back after `retry_after_s`.

    `has_begun` says that a part of the reply had come: it is not the whole.
    """

    def __init__(self, status: Status) -> None:
        """Keep the time, and whether anything had come."""
        super().__init__(status)
        self.retry_after_s = status.retry_after_s
        self.has_begun = status.has_begun


class ServerLoading(ServerUnavailable):
    """The server is still loading its model: come back after `retry_after_s`."""


class Unreachable(ClientError):
    """Nobody answers at this address, or whoever does ended before it said anything."""


class ConnectionLost(ClientError):
    """The server ended during the reply; what came before it is not the whole reply."""


class DeadlineExceeded(ClientError):
    """The time that was allowed is over; `phase` is where it went, None when not known."""

    def __init__(self, status: Status) -> None:
        """Keep the phase."""
        super().__init__(status)
        self.phase = status.facts.get("phase")


class CallCancelled(ClientError):
    """The call was cancelled."""


class ReplyCorrupt(ClientError):
    """The model gave logits that are not numbers, for this request alone."""


class StepFailed(ClientError):
    """The ranks could not run this request, even alone; sent again, it may well fail again."""


class RequestPoisoned(ClientError):
    """The server's ranks were lost again and again with this request, at last with it alone."""


class MessageTooLarge(ClientError):
    """gRPC itself refused the message, or the call beside too many others."""


class ServerFault(ClientError):
    """A bug of the server; its log has the trace under `record_id`, None when not known."""

    def __init__(self, status: Status) -> None:
        """Keep the id."""
        super().__init__(status)
        self.record_id = status.facts.get("record_id")


_BY_LANEHOST: dict[grpc.StatusCode, type[ClientError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: BadRequest,
    grpc.StatusCode.UNAUTHENTICATED: KeyRefused,
    grpc.StatusCode.UNIMPLEMENTED: NotSupported,
    grpc.StatusCode.OUT_OF_RANGE: TooLong,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ServerBusy,
    grpc.StatusCode.UNAVAILABLE: ServerUnavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: CallCancelled,
    grpc.StatusCode.ABORTED: RequestPoisoned,
    grpc.StatusCode.DATA_LOSS: ReplyCorrupt,
}
# Codes that the server has more than one error for.
_BY_REASON: dict[str, type[ClientError]] = {
    "STARTING": ServerLoading,
    "STEP_FAILED": StepFailed,
    "UNKNOWN_STREAM": StreamUnknown,
    "UNKNOWN_UPLOAD": UploadUnknown,
    "INDEX_OUT_OF_RANGE": IndexOutOfRange,
    "TAKEN_OVER": StreamTakenOver,
}
# Made by gRPC itself, or by a proxy on the way.
_BY_GRPC: dict[grpc.StatusCode, type[ClientError]] = {
    grpc.StatusCode.UNAUTHENTICATED: KeyRefused,
    grpc.StatusCode.UNIMPLEMENTED: NotSupported,
    grpc.StatusCode.RESOURCE_EXHAUSTED: MessageTooLarge,
    grpc.StatusCode.UNAVAILABLE: Unreachable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: CallCancelled,
}


_LOST = "the server ended during the reply"


def read_status(
    code: grpc.StatusCode, message: str, metadata: Iterable[tuple[str, str | bytes]]
) -> Status:
    """Read a status from its code and its trailing metadata."""
    rich = status_pb2.Status()
    for key, value in metadata:
        if key == _DETAILS_KEY and isinstance(value, bytes):
            rich = status_pb2.Status.FromString(value)
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    _unpack(rich, info)
    _unpack(rich, retry)
    return Status(
        code=code,
        message=message,
        reason=info.reason,
        is_from_lanehost=info.domain == _DOMAIN,
        facts=dict(info.metadata),
        retry_after_s=retry.retry_delay.ToNanoseconds() / 1e9,
    )


def to_client_error(status: Status) -> ClientError:
    """Return the error that a status is; what no table knows is a fault of the server."""
    if status.is_from_lanehost and status.reason in _BY_REASON:
        return _BY_REASON[status.reason](status)
    table = _BY_LANEHOST if status.is_from_lanehost else _BY_GRPC
    if status.has_begun and table.get(status.code) is Unreachable:
        return ConnectionLost(replace(status, message=_LOST))
    return table.get(status.code, ServerFault)(status)


def translate(error: grpc.RpcError, *, address: str, has_begun: bool = False) -> ClientError:
    """Return the error that a failed call is.

    Args:
        error: As gRPC raised it.
        address: Whom the call went to.
        has_begun: Whether events of a streamed reply had come before.
    """
    # Both kinds of calls raise what has these three; grpc's own types do not say so.
    call: Any = error
    status = read_status(call.code(), call.details() or "", call.trailing_metadata() or ())
    found = to_client_error(replace(status, has_begun=has_begun))
    if isinstance(found, Unreachable):
        return Unreachable(replace(status, message=f"no gRPC server answers at {address}"))
    return found


def _unpack(rich: status_pb2.Status, detail: Message) -> None:
    for packed in rich.details:
        if packed.Is(detail.DESCRIPTOR):
            packed.Unpack(detail)
