import grpc
import pytest

from lanehost import client_errors as seen
from lanehost import errors as raised
from lanehost.client_errors import ClientError, read_status, to_client_error
from lanehost.server.status import to_status

ROWS = [
    (raised.InvalidRequest("max_tokens", "is 0"), seen.BadRequest, {"field": "max_tokens"}),
    (raised.Unauthenticated("x"), seen.KeyRefused, {}),
    (raised.DoesNotFit("x", have=9, limit=8), seen.TooLong, {"have": 9, "limit": 8}),
    (raised.NotBuilt("images", "x"), seen.NotSupported, {"field": "images"}),
    (raised.Overloaded("x", retry_after_s=2.5), seen.ServerBusy, {"retry_after_s": 2.5}),
    (raised.Starting("x"), seen.ServerLoading, {"retry_after_s": 1.0}),
    (raised.Draining("x"), seen.ServerUnavailable, {"retry_after_s": 1.0}),
    (
        raised.RankGroupLost("x", epoch=1, rank=0),
        seen.ServerUnavailable,
        {"retry_after_s": 1.0},
    ),
    (raised.PoisonedRequest("x"), seen.RequestPoisoned, {}),
    (raised.DeadlinePassed("decode"), seen.DeadlineExceeded, {"phase": "decode"}),
    (raised.Cancelled("x"), seen.CallCancelled, {}),
    (raised.ReplyCorrupt("x"), seen.ReplyCorrupt, {}),
    (raised.StepFailed("x"), seen.StepFailed, {}),
    (
        raised.NotJournaled("x", retry_after_s=1.0),
        seen.ServerUnavailable,
        {"retry_after_s": 1.0, "has_begun": False},
    ),
    (raised.UnknownStream("x"), seen.StreamUnknown, {}),
    (raised.UnknownUpload("x"), seen.UploadUnknown, {}),
    (raised.IndexOutOfRange(have=9, limit=4), seen.IndexOutOfRange, {"have": 9, "limit": 4}),
    (raised.TakenOver("x"), seen.StreamTakenOver, {}),
    (raised.InternalFault("r1"), seen.ServerFault, {"record_id": "r1"}),
]
GRPC_ROWS = [
    ("UNAVAILABLE", seen.Unreachable, {}),
    ("DEADLINE_EXCEEDED", seen.DeadlineExceeded, {"phase": None}),
    ("CANCELLED", seen.CallCancelled, {}),
    ("RESOURCE_EXHAUSTED", seen.MessageTooLarge, {}),
    ("UNIMPLEMENTED", seen.NotSupported, {"field": None}),
    ("UNAUTHENTICATED", seen.KeyRefused, {}),
    ("INTERNAL", seen.ServerFault, {"record_id": None}),
    ("UNKNOWN", seen.ServerFault, {"record_id": None}),
]


def _error(code: grpc.StatusCode, message: str, metadata) -> ClientError:
    return to_client_error(read_status(code, message, metadata))


@pytest.mark.parametrize(("error", "kind", "facts"), ROWS, ids=lambda value: str(value)[:20])
def test_what_the_server_raised_is_what_the_client_sees(error, kind, facts) -> None:
    status = to_status(error)
    found = _error(status.code, status.details, status.trailing_metadata)
    assert type(found) is kind
    assert (found.code, found.message, str(found)) == (status.code, str(error), str(error))
    assert {name: getattr(found, name) for name in facts} == facts


def test_every_error_of_the_server_has_one_of_the_client() -> None:
    kinds = {
        kind for kind in raised.LanehostError.__subclasses__() if kind.__module__ == raised.__name__
    }
    assert kinds - {raised.StartupFailed} == {type(error) for error, _, _ in ROWS}


@pytest.mark.parametrize(("code", "kind", "facts"), GRPC_ROWS)
def test_a_status_that_grpc_made_is_told_apart(code, kind, facts) -> None:
    found = _error(grpc.StatusCode[code], "said", [("other-key", "x")])
    assert type(found) is kind
    assert {name: getattr(found, name) for name in facts} == facts


def test_what_is_lost_after_the_first_event_was_there() -> None:
    for code, kind in (("UNAVAILABLE", seen.ConnectionLost), ("CANCELLED", seen.CallCancelled)):
        status = seen.Status(code=grpc.StatusCode[code], message="Socket closed", has_begun=True)
        assert type(to_client_error(status)) is kind


def test_a_server_that_says_that_it_ends_is_not_lost() -> None:
    status = seen.Status(
        code=grpc.StatusCode.UNAVAILABLE,
        message="ending",
        reason="DRAINING",
        is_from_lanehost=True,
        has_begun=True,
    )
    assert type(to_client_error(status)) is seen.ServerUnavailable
