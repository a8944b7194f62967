"""Error class → gRPC status with details, in one table.

    error            code                  metadata of ErrorInfo   other details
    InvalidRequest   INVALID_ARGUMENT      field                   BadRequest.FieldViolation
    ImageRefused     INVALID_ARGUMENT      field                   BadRequest.FieldViolation
    Unauthenticated  UNAUTHENTICATED
    DoesNotFit       OUT_OF_RANGE          have, limit
    Overloaded       RESOURCE_EXHAUSTED                            RetryInfo
    NotJournaled     UNAVAILABLE                                   RetryInfo
    UnknownStream    NOT_FOUND
    UnknownUpload    NOT_FOUND
    IndexOutOfRange  OUT_OF_RANGE          have, limit
    TakenOver        ABORTED
    Cancelled        CANCELLED
    DeadlinePassed   DEADLINE_EXCEEDED     phase
    RankGroupLost    UNAVAILABLE           epoch, rank             RetryInfo
    PoisonedRequest  ABORTED
    Starting         UNAVAILABLE                                   RetryInfo
    Draining         UNAVAILABLE                                   RetryInfo
    ReplyCorrupt     DATA_LOSS
    StepFailed       INTERNAL
    NotBuilt         UNIMPLEMENTED         field
    InternalFault    INTERNAL              record_id
    any other        INTERNAL              record_id               (its trace is in the log)

Every status carries ErrorInfo with a reason and the domain "lanehost", so that a
client can tell it from one that gRPC made itself.
"""

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from lanehost.door.retry import retry_after_s
from lanehost.errors import (
    Cancelled,
    DeadlinePassed,
    DoesNotFit,
    Draining,
    ImageRefused,
    IndexOutOfRange,
    InternalFault,
    InvalidRequest,
    NotBuilt,
    NotJournaled,
    Overloaded,
    PoisonedRequest,
    RankGroupLost,
    ReplyCorrupt,
    Starting,
    StepFailed,
    TakenOver,
    Unauthenticated,
    UnknownStream,
    UnknownUpload,
)
from lanehost.fault import record_fault

DOMAIN = "lanehost"
# Details travel in HTTP/2 trailers, which peers bound at 8 KiB, and the text is in them thrice.
MAX_MESSAGE_CHARS = 500
_TABLE: dict[type[Exception], tuple[grpc.StatusCode, str]] = {
    InvalidRequest: (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
    ImageRefused: (grpc.StatusCode.INVALID_ARGUMENT, "IMAGE_REFUSED"),
    Unauthenticated: (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"),
    DoesNotFit: (grpc.StatusCode.OUT_OF_RANGE, "DOES_NOT_FIT"),
    Overloaded: (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED"),
    NotJournaled: (grpc.StatusCode.UNAVAILABLE, "NOT_JOURNALED"),
    UnknownStream: (grpc.StatusCode.NOT_FOUND, "UNKNOWN_STREAM"),
    UnknownUpload: (grpc.StatusCode.NOT_FOUND, "UNKNOWN_UPLOAD"),
    IndexOutOfRange: (grpc.StatusCode.OUT_OF_RANGE, "INDEX_OUT_OF_RANGE"),
    TakenOver: (grpc.StatusCode.ABORTED, "TAKEN_OVER"),
    Cancelled: (grpc.StatusCode.CANCELLED, "CANCELLED"),
    DeadlinePassed: (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_PASSED"),
    RankGroupLost: (grpc.StatusCode.UNAVAILABLE, "RANK_GROUP_LOST"),
    PoisonedRequest: (grpc.StatusCode.ABORTED, "POISONED_REQUEST"),
    Starting: (grpc.StatusCode.UNAVAILABLE, "STARTING"),
    Draining: (grpc.StatusCode.UNAVAILABLE, "DRAINING"),
    ReplyCorrupt: (grpc.StatusCode.DATA_LOSS, "REPLY_CORRUPT"),
    StepFailed: (grpc.StatusCode.INTERNAL, "STEP_FAILED"),
    NotBuilt: (grpc.StatusCode.UNIMPLEMENTED, "NOT_BUILT"),
    InternalFault: (grpc.StatusCode.INTERNAL, "INTERNAL_FAULT"),
}
_METADATA = ("field", "have", "limit", "phase", "epoch", "rank", "record_id")


def to_status(error: Exception) -> grpc.Status:
    """Return the status that tells a client of this error.

    An error without a row is a bug of ours: it is logged with its trace under a
    fresh record id, and the client gets the id alone.
    """
    known = error if type(error) in _TABLE else record_fault(error)
    code, reason = _TABLE[type(known)]
    message = str(known)[:MAX_MESSAGE_CHARS]
    info = error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=_metadata(known))
    status = status_pb2.Status(code=code.value[0], message=message)
    for detail in (info, *_details(known)):
        status.details.add().Pack(detail)
    rich: grpc.Status = rpc_status.to_status(status)
    return rich


def _metadata(error: Exception) -> dict[str, str]:
    values = {name: getattr(error, name, None) for name in _METADATA}
    return {name: str(value) for name, value in values.items() if value is not None}


def _details(error: Exception) -> list[Message]:
    if isinstance(error, InvalidRequest):
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=error.field, description=error.reason[:MAX_MESSAGE_CHARS]
        )
        return [error_details_pb2.BadRequest(field_violations=[violation])]
    seconds = retry_after_s(error)
    return [] if seconds is None else [_retry_info(seconds)]


def _retry_info(seconds: float) -> error_details_pb2.RetryInfo:
    delay = Duration()
    delay.FromNanoseconds(int(seconds * 1e9))
    return error_details_pb2.RetryInfo(retry_delay=delay)
