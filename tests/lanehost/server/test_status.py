import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from structlog.testing import capture_logs

from lanehost.errors import (
    Cancelled,
    DeadlinePassed,
    DoesNotFit,
    Draining,
    ImageRefused,
    IndexOutOfRange,
    InternalFault,
    InvalidRequest,
    LanehostError,
    NotBuilt,
    NotJournaled,
    Overloaded,
    PoisonedRequest,
    RankGroupLost,
    ReplyCorrupt,
    Starting,
    StartupFailed,
    StepFailed,
    TakenOver,
    Unauthenticated,
    UnknownStream,
    UnknownUpload,
)
from lanehost.server.status import MAX_MESSAGE_CHARS, to_status

ROWS = [
    (InvalidRequest("max_tokens", "is 0"), "INVALID_ARGUMENT", {"field": "max_tokens"}),
    (DoesNotFit("too long", have=99, limit=10), "OUT_OF_RANGE", {"have": "99", "limit": "10"}),
    (Overloaded("full", retry_after_s=2.5), "RESOURCE_EXHAUSTED", {}),
    (Cancelled("gone"), "CANCELLED", {}),
    (DeadlinePassed("prefill"), "DEADLINE_EXCEEDED", {"phase": "prefill"}),
    (RankGroupLost("rank 0", epoch=3, rank=0), "UNAVAILABLE", {"epoch": "3", "rank": "0"}),
    (RankGroupLost("all", epoch=3, rank=None), "UNAVAILABLE", {"epoch": "3"}),
    (PoisonedRequest("by it alone"), "ABORTED", {}),
    (Starting("loading"), "UNAVAILABLE", {}),
    (Draining("ending"), "UNAVAILABLE", {}),
    (ReplyCorrupt("NaN"), "DATA_LOSS", {}),
    (NotBuilt("tools", "not built"), "UNIMPLEMENTED", {"field": "tools"}),
    (Unauthenticated("no key"), "UNAUTHENTICATED", {}),
    (StepFailed("no memory"), "INTERNAL", {}),
    (NotJournaled("full", retry_after_s=1.0), "UNAVAILABLE", {}),
    (UnknownStream("none"), "NOT_FOUND", {}),
    (UnknownUpload("none"), "NOT_FOUND", {}),
    (ImageRefused("images[2]", "is empty"), "INVALID_ARGUMENT", {"field": "images[2]"}),
    (IndexOutOfRange(have=9, limit=4), "OUT_OF_RANGE", {"have": "9", "limit": "4"}),
    (TakenOver("elsewhere"), "ABORTED", {}),
    (InternalFault("r1"), "INTERNAL", {"record_id": "r1"}),
]


def _rich(status: grpc.Status) -> status_pb2.Status:
    (entry,) = status.trailing_metadata
    return status_pb2.Status.FromString(entry[1])


def _detail(status: grpc.Status, kind):
    for packed in _rich(status).details:
        detail = kind()
        if packed.Unpack(detail):
            return detail
    return None


@pytest.mark.parametrize(("error", "code", "metadata"), ROWS, ids=lambda value: str(value)[:24])
def test_each_error_has_its_row(error: LanehostError, code: str, metadata: dict[str, str]) -> None:
    status = to_status(error)
    info = _detail(status, error_details_pb2.ErrorInfo)
    assert status.code is grpc.StatusCode[code]
    assert status.details == str(error)
    assert info.domain == "lanehost"
    assert dict(info.metadata) == metadata


def test_every_error_that_a_client_can_meet_has_a_row() -> None:
    kinds = [*LanehostError.__subclasses__(), *InvalidRequest.__subclasses__()]
    ours = {kind for kind in kinds if kind.__module__ == LanehostError.__module__}
    assert {type(error) for error, _, _ in ROWS} == ours - {StartupFailed}


def test_reasons_tell_the_errors_apart() -> None:
    reasons = {
        type(error): _detail(to_status(error), error_details_pb2.ErrorInfo).reason
        for error, _, _ in ROWS
    }
    assert len(set(reasons.values())) == len(reasons)


def test_a_wrong_field_is_a_field_violation() -> None:
    detail = _detail(to_status(ROWS[0][0]), error_details_pb2.BadRequest)
    (violation,) = detail.field_violations
    assert (violation.field, violation.description) == ("max_tokens", "is 0")


def test_an_overloaded_server_says_when_to_come_back() -> None:
    detail = _detail(to_status(Overloaded("full", retry_after_s=2.5)), error_details_pb2.RetryInfo)
    assert detail.retry_delay.ToMilliseconds() == 2500


@pytest.mark.parametrize(
    "error", [RankGroupLost("x", epoch=1, rank=None), Starting("x"), Draining("x")]
)
def test_an_unavailable_server_says_when_to_come_back(error: LanehostError) -> None:
    detail = _detail(to_status(error), error_details_pb2.RetryInfo)
    assert detail.retry_delay.ToMilliseconds() > 0


@pytest.mark.parametrize(
    "error", [ValueError("secret"), StartupFailed("secret"), LanehostError("secret")]
)
def test_an_unknown_error_tells_the_client_a_record_id_alone(error: Exception) -> None:
    with capture_logs() as logs:
        status = to_status(error)
    info = _detail(status, error_details_pb2.ErrorInfo)
    assert status.code is grpc.StatusCode.INTERNAL
    assert info.metadata["record_id"] == logs[0]["record_id"]
    assert "secret" not in status.details
    assert b"secret" not in status.trailing_metadata[0][1]


def test_a_long_message_still_fits_the_trailers() -> None:
    status = to_status(InvalidRequest("messages", "é" * 100_000))
    assert len(status.details) == MAX_MESSAGE_CHARS
    # The text of grpc-message is percent-encoded, the details are base64.
    assert len(status.details.encode()) * 3 + len(status.trailing_metadata[0][1]) * 4 / 3 < 8000
