"""Error class → HTTP status and OpenAI's error form, in one table.

    error            status  type                   code
    InvalidRequest   400     invalid_request_error  invalid_value
    ImageRefused     400     invalid_request_error  invalid_image
    Unauthenticated  401     invalid_request_error  invalid_api_key      WWW-Authenticate
    NotBuilt         400     invalid_request_error  not_built
    DoesNotFit       400     invalid_request_error  context_length_exceeded
    UnknownModel     404     invalid_request_error  model_not_found
    BodyTooLarge     413     invalid_request_error  body_too_large
    BodyTimeout      408     invalid_request_error  body_timeout
    BodiesTooMany    503     server_error           overloaded           Retry-After
    Overloaded       429     rate_limit_error       overloaded           Retry-After
    NotJournaled     503     server_error           not_journaled        Retry-After
    UnknownStream    404     invalid_request_error  unknown_stream
    UnknownUpload    404     invalid_request_error  unknown_upload
    IndexOutOfRange  400     invalid_request_error  index_out_of_range
    TakenOver        409     invalid_request_error  taken_over
    Cancelled        499     server_error           cancelled
    DeadlinePassed   504     server_error           deadline_passed
    RankGroupLost    503     server_error           rank_group_lost      Retry-After
    PoisonedRequest  422     invalid_request_error  poisoned_request
    ReplicaLost      503     server_error           replica_lost         Retry-After
    Starting         503     server_error           starting             Retry-After
    Draining         503     server_error           draining             Retry-After
    ReplyCorrupt     500     server_error           reply_corrupt
    StepFailed       500     server_error           step_failed
    InternalFault    500     server_error           internal_fault
    any other        500     server_error           internal_fault       (its trace is in the log)

NotBuilt is 400 and not 501, since official clients send a request again after any 5xx; so
PoisonedRequest, which would cost the ranks once more, is 422.
`param` is the field in the words of OpenAI's JSON, by the name that the client sent it under.
After an error that comes before the body is read whole the connection is closed.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from lanehost.door.retry import RETRY_AFTER_LOSS_S, retry_after_s
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
    StepFailed,
    TakenOver,
    Unauthenticated,
    UnknownStream,
    UnknownUpload,
)
from lanehost.fault import record_fault

_MAX_MESSAGE_CHARS = 1000
_MAX_SHOWN_CHARS = 40


class UnknownModel(InvalidRequest):
    """The request names a model that is not here."""


class BodyTooLarge(LanehostError):
    """The body has more bytes than the door takes."""

    def __init__(self, *, have: int, limit: int) -> None:
        """Say both numbers."""
        super().__init__(f"the body has at least {have} bytes, limit {limit}")


class BodyTimeout(LanehostError):
    """The body did not arrive in time."""

    def __init__(self, timeout_s: float) -> None:
        """Say the limit."""
        super().__init__(f"the body did not arrive within {timeout_s:g} s")


class BodiesTooMany(LanehostError):
    """All bodies that are read at once have more bytes than the door holds."""

    def __init__(self, *, have: int, limit: int) -> None:
        """Say both numbers."""
        super().__init__(f"the bodies read at once have {have} bytes, limit {limit}")


class ReplicaLost(LanehostError):
    """The replica that ran the request is gone; raised by the door of the replicas alone."""


_TABLE: dict[type[Exception], tuple[int, str, str]] = {
    InvalidRequest: (400, "invalid_request_error", "invalid_value"),
    ImageRefused: (400, "invalid_request_error", "invalid_image"),
    Unauthenticated: (401, "invalid_request_error", "invalid_api_key"),
    NotBuilt: (400, "invalid_request_error", "not_built"),
    DoesNotFit: (400, "invalid_request_error", "context_length_exceeded"),
    UnknownModel: (404, "invalid_request_error", "model_not_found"),
    BodyTooLarge: (413, "invalid_request_error", "body_too_large"),
    BodyTimeout: (408, "invalid_request_error", "body_timeout"),
    BodiesTooMany: (503, "server_error", "overloaded"),
    Overloaded: (429, "rate_limit_error", "overloaded"),
    NotJournaled: (503, "server_error", "not_journaled"),
    UnknownStream: (404, "invalid_request_error", "unknown_stream"),
    UnknownUpload: (404, "invalid_request_error", "unknown_upload"),
    IndexOutOfRange: (400, "invalid_request_error", "index_out_of_range"),
    TakenOver: (409, "invalid_request_error", "taken_over"),
    Cancelled: (499, "server_error", "cancelled"),
    DeadlinePassed: (504, "server_error", "deadline_passed"),
    RankGroupLost: (503, "server_error", "rank_group_lost"),
    ReplicaLost: (503, "server_error", "replica_lost"),
    PoisonedRequest: (422, "invalid_request_error", "poisoned_request"),
    Starting: (503, "server_error", "starting"),
    Draining: (503, "server_error", "draining"),
    ReplyCorrupt: (500, "server_error", "reply_corrupt"),
    StepFailed: (500, "server_error", "step_failed"),
    InternalFault: (500, "server_error", "internal_fault"),
}
_UNREAD = (Unauthenticated, BodyTooLarge, BodyTimeout, BodiesTooMany)
_NO_NAMES: Mapping[str, str] = MappingProxyType({})
# The words of the wire and the door → the words of OpenAI's JSON.
_PARAMS = {
    "prompt.token_ids": "prompt",
    "text": "prompt",
    "token_ids": "prompt",
    "chat": "messages",
    "chat.messages": "messages",
    "stop.strings": "stop",
    "stop.token_ids": "stop_token_ids",
    "stop.ignore_eos": "ignore_eos",
    "label": "user",
}
# (type of pydantic's error, whether text is allowed beside a list) → what the client reads.
_MESSAGES = {
    ("missing", False): "is missing",
    ("model_type", False): "is not a JSON object",
    ("list_type", False): "is not a list",
    ("list_type", True): "is neither text nor a list",
}


def error_body(
    error: Exception, names: Mapping[str, str] = _NO_NAMES
) -> tuple[int, dict[str, Any]]:
    """Return the status and OpenAI's error object.

    `names` has what the client called a field, where that is not what is usual.

    An error without a row is a bug of ours: it is logged with its trace under a
    fresh record id, and the client gets the id alone.
    """
    known = error if type(error) in _TABLE else record_fault(error)
    status, kind, code = _TABLE[type(known)]
    param, message = None, str(known)
    if isinstance(known, InvalidRequest | NotBuilt):
        param = names.get(known.field) or _param(known.field)
        message = f"{param}: {known.reason}"
    return status, _body(message, kind=kind, code=code, param=param)


def error_response(error: Exception, names: Mapping[str, str] = _NO_NAMES) -> JSONResponse:
    """Return the answer to a request that failed before anything of it was sent."""
    status, body = error_body(error, names)
    unread = isinstance(error, _UNREAD)
    is_soon = isinstance(error, BodiesTooMany | ReplicaLost)
    seconds = RETRY_AFTER_LOSS_S if is_soon else retry_after_s(error)
    headers = {"connection": "close"} if unread else {}
    if isinstance(error, Unauthenticated):
        headers["www-authenticate"] = "Bearer"
    if seconds is not None:
        headers["retry-after"] = str(math.ceil(seconds))
    return JSONResponse(body, status_code=status, headers=headers)


def http_error_response(error: HTTPException) -> JSONResponse:
    """Return OpenAI's form of an error that the router found: 404 and 405."""
    body = _body(
        error.detail, kind="invalid_request_error", code=f"http_{error.status_code}", param=None
    )
    return JSONResponse(body, status_code=error.status_code, headers=dict(error.headers or {}))


def to_refusal(error: ValidationError) -> InvalidRequest | NotBuilt:
    """Return the first thing that is wrong with a body, by the path of its field."""
    first = error.errors(include_url=False)[0]
    context: dict[str, Any] = first.get("ctx", {})
    steps = [step for step in first["loc"] if not str(step).startswith("~")]
    field = _path([*steps, *filter(None, [context.get("field")])])
    if first["type"] == "not_built":
        return NotBuilt(field, first["msg"])
    is_or_list = "~list" in first["loc"][-1:]
    message = _MESSAGES.get((first["type"], is_or_list))
    if message is None:
        message = first["msg"].replace("Input should", "should").replace("List", "it")
        message = message if "field" in context else _shown(first["input"]) + message
    return InvalidRequest(field or "body", message)


def _shown(value: object) -> str:
    """Show a value if it is small; a list or a long text is the client's own to look up."""
    shown = repr(value)
    if isinstance(value, list | dict) or len(shown) > _MAX_SHOWN_CHARS:
        return f"is a {type(value).__name__}, "
    return f"is {shown}, "


def _path(steps: list[Any]) -> str:
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return path


def _param(field: str) -> str:
    return _PARAMS.get(field) or field.removeprefix("sampling.")


def _body(message: str, *, kind: str, code: str, param: str | None) -> dict[str, Any]:
    return {
        "error": {
            "message": message[:_MAX_MESSAGE_CHARS],
            "type": kind,
            "param": param,
            "code": code,
        }
    }
