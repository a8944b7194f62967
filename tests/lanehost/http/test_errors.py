import pytest
from starlette.exceptions import HTTPException
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
from lanehost.http.errors import (
    BodiesTooMany,
    BodyTimeout,
    BodyTooLarge,
    ReplicaLost,
    UnknownModel,
    error_body,
    error_response,
    http_error_response,
)

ROWS = [
    (InvalidRequest("max_tokens", "is 0"), 400, "invalid_value"),
    (NotBuilt("tools", "x"), 400, "not_built"),
    (DoesNotFit("99 of 10", have=99, limit=10), 400, "context_length_exceeded"),
    (UnknownModel("model", "x"), 404, "model_not_found"),
    (BodyTooLarge(have=9, limit=8), 413, "body_too_large"),
    (BodyTimeout(60), 408, "body_timeout"),
    (BodiesTooMany(have=9, limit=8), 503, "overloaded"),
    (Overloaded("full", retry_after_s=2.5), 429, "overloaded"),
    (Cancelled("gone"), 499, "cancelled"),
    (DeadlinePassed("prefill"), 504, "deadline_passed"),
    (RankGroupLost("rank 0", epoch=3, rank=0), 503, "rank_group_lost"),
    (ReplicaLost("gone"), 503, "replica_lost"),
    (PoisonedRequest("by it alone"), 422, "poisoned_request"),
    (Starting("loading"), 503, "starting"),
    (Draining("ending"), 503, "draining"),
    (ReplyCorrupt("NaN"), 500, "reply_corrupt"),
    (Unauthenticated("no key"), 401, "invalid_api_key"),
    (StepFailed("no memory"), 500, "step_failed"),
    (NotJournaled("full", retry_after_s=1.0), 503, "not_journaled"),
    (UnknownStream("none"), 404, "unknown_stream"),
    (UnknownUpload("none"), 404, "unknown_upload"),
    (ImageRefused("images[2]", "is empty"), 400, "invalid_image"),
    (IndexOutOfRange(have=9, limit=4), 400, "index_out_of_range"),
    (TakenOver("elsewhere"), 409, "taken_over"),
    (InternalFault("r1"), 500, "internal_fault"),
]


@pytest.mark.parametrize(("error", "status", "code"), ROWS, ids=lambda value: str(value)[:20])
def test_each_error_has_its_row(error: LanehostError, status: int, code: str) -> None:
    seen, body = error_body(error)
    assert seen == status
    assert body["error"]["code"] == code
    assert body["error"]["message"] == str(error)
    assert set(body["error"]) == {"message", "type", "param", "code"}


def test_every_error_that_a_client_can_meet_has_a_row() -> None:
    raised = {
        kind for kind in LanehostError.__subclasses__() if kind.__module__ == "lanehost.errors"
    }
    assert raised - {StartupFailed} <= {type(error) for error, _, _ in ROWS}


@pytest.mark.parametrize(
    ("field", "param"),
    [
        ("max_tokens", "max_tokens"),
        ("sampling.temperature", "temperature"),
        ("prompt.token_ids", "prompt"),
        ("chat", "messages"),
        ("stop.strings", "stop"),
        ("stop.token_ids", "stop_token_ids"),
        ("label", "user"),
        ("messages[0].role", "messages[0].role"),
    ],
)
def test_fields_are_named_in_the_words_of_openai(field: str, param: str) -> None:
    body = error_body(InvalidRequest(field, "is wrong"))[1]
    assert (body["error"]["param"], body["error"]["message"]) == (param, f"{param}: is wrong")


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (Overloaded("full", retry_after_s=2.5), "3"),
        (RankGroupLost("x", epoch=1, rank=None), "1"),
        (Starting("x"), "1"),
        (Draining("x"), "1"),
        (BodiesTooMany(have=9, limit=8), "1"),
        (ReplicaLost("x"), "1"),
        (Cancelled("x"), None),
    ],
)
def test_who_may_come_back_is_told_when(error: LanehostError, seconds: str | None) -> None:
    assert error_response(error).headers.get("retry-after") == seconds


def test_an_unknown_error_tells_the_client_a_record_id_alone() -> None:
    with capture_logs() as logs:
        status, body = error_body(ValueError("secret"))
    assert status == 500
    assert logs[0]["record_id"] in body["error"]["message"]
    assert "secret" not in f"{body}{logs}"


def test_a_long_message_is_cut() -> None:
    assert len(error_body(InvalidRequest("f", "x" * 10_000))[1]["error"]["message"]) == 1000


def test_an_error_of_the_router_keeps_its_headers() -> None:
    response = http_error_response(HTTPException(405, "no", {"allow": "POST"}))
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
