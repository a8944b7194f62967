"""The OpenAI door: its paths.

POST /v1/chat/completions     a chat, whole or streamed
POST /v1/completions          text or token ids, whole or streamed
GET  /v1/models               the one model, its limits, and the default of every option
GET  /v1/models/NAME          the same, by name
GET  /health                  200 while requests are run, else 503
GET  /metrics                 what is counted and seen, for Prometheus

Where the server has keys, every path but /health and /metrics wants one, as
`Authorization: Bearer KEY`.
A reply tells the seed in force and the server's id of the job in its headers
(`x-lanehost-seed`, `x-request-id`), and the weights in `system_fingerprint`.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial, wraps
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lanehost.door.interface import Door
from lanehost.http.answer import WRITE_TIMEOUT_S
from lanehost.http.errors import UnknownModel, error_response, http_error_response
from lanehost.http.forms import ChatForm, CompletionForm
from lanehost.http.reading import BodyReader, key_of
from lanehost.http.replying import ReplyEndpoint
from lanehost.metrics.metrics import Metrics

_PATHS = "/v1/chat/completions, /v1/completions, /v1/models, /health and /metrics"
_Endpoint = Callable[[Request], Awaitable[Response]]


def build_http_app(
    door: Door,
    *,
    metrics: Metrics,
    clock: Callable[[], float] = time.time,
    bodies: BodyReader | None = None,
    write_timeout_s: float = WRITE_TIMEOUT_S,
) -> Starlette:
    """Build the ASGI application.

    Args:
        door: Who runs the requests.
        metrics: What `/metrics` tells.
        clock: Gives the time of day, in seconds.
        bodies: Who reads the bodies; None takes the usual bounds.
        write_timeout_s: How long a client that does not read may hold up its reply.
    """
    models = _Models(door, created_s=int(clock()))
    endpoint = partial(
        ReplyEndpoint,
        door,
        bodies=BodyReader() if bodies is None else bodies,
        clock=clock,
        write_timeout_s=write_timeout_s,
    )
    app = Starlette(
        routes=[
            _post("/v1/chat/completions", endpoint(ChatForm())),
            _post("/v1/completions", endpoint(CompletionForm())),
            Route("/v1/models", _bordered(models.list)),
            Route("/v1/models/{name:path}", _bordered(models.get)),
            Route("/health", _bordered(_health(door))),
            Route("/metrics", _bordered(_metrics(metrics))),
        ],
        exception_handlers={HTTPException: _routing_failed},
    )
    app.router.redirect_slashes = False  # a path with one too many is unknown, as any other
    return app


class _Models:
    def __init__(self, door: Door, *, created_s: int) -> None:
        self._door = door
        self._created_s = created_s

    async def list(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model(request)]})

    async def get(self, request: Request) -> Response:
        name, model = request.path_params["name"], self._model(request)
        if name != model["id"]:
            raise UnknownModel("model", f"{name[:100]!r} is not here, only {model['id']!r} is")
        return JSONResponse(model)

    def _model(self, request: Request) -> dict[str, Any]:
        card = self._door.model_card(key_of(request.scope))
        return {
            "id": card.name,
            "object": "model",
            "created": self._created_s,
            "owned_by": "lanehost",
            "context_length": card.context_length,
            "vocab_size": card.vocab_size,
            "dtype": card.dtype,
            "weights": card.weights,
            "weights_digest": card.weights_digest,
            "config_digest": card.config_digest,
            "kv_tokens": card.kv_tokens,
            "has_prompt_cache": card.has_prompt_cache,
            "images": None if card.images is None else asdict(card.images),
            "default_max_tokens": card.default_max_tokens,
            "default_sampling": asdict(card.default_sampling),
        }


def _health(door: Door) -> _Endpoint:
    async def health(request: Request) -> Response:
        del request
        is_serving = door.is_serving()
        status = "serving" if is_serving else "not_serving"
        return JSONResponse({"status": status}, status_code=200 if is_serving else 503)

    return health


def _metrics(metrics: Metrics) -> _Endpoint:
    async def page(request: Request) -> Response:
        told = metrics.page(", ".join(request.headers.getlist("accept")))
        return Response(told.body, media_type=told.content_type)

    return page


def _post(path: str, endpoint: ReplyEndpoint) -> Route:
    return Route(path, endpoint, methods=["POST"])


def _bordered(endpoint: _Endpoint) -> _Endpoint:
    @wraps(endpoint)
    async def run(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:  # noqa: BLE001 - the border: logged, and ends this call alone
            return error_response(error)

    return run


async def _routing_failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = f"{request.method} {request.url.path[:200]}: {error.detail}"
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail += f"; there are {_PATHS}"
    elif error.headers and "Allow" in error.headers:
        detail += f"; it takes {error.headers['Allow']}"
    return http_error_response(HTTPException(error.status_code, detail, error.headers))
