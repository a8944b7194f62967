"""The OpenAI door over a fake door, on a free port of the loopback, for one test."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from starlette.applications import Starlette

from lanehost.http.app import build_http_app
from lanehost.http.server import HttpServer
from lanehost.metrics.metrics import Metrics
from tests.support.fake_door import FakeDoor

CREATED_S = 1_700_000_000


def http_app(door: FakeDoor, **options) -> Starlette:
    """Build the application with metrics of its own."""
    metrics = Metrics(clock=time.monotonic, version="1.2.3")
    return build_http_app(door, metrics=metrics, **options)


@asynccontextmanager
async def serve_http(door: FakeDoor, **options) -> AsyncIterator[str]:
    """Serve the door; gives its base URL. `options` go to `build_http_app`."""
    app = http_app(door, clock=lambda: CREATED_S + 0.5, **options)
    server = HttpServer(app, "127.0.0.1", 0)
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.stop(0)


@asynccontextmanager
async def http_client(door: FakeDoor, **options) -> AsyncIterator[httpx.AsyncClient]:
    """Serve the door; gives a client of it."""
    async with (
        serve_http(door, **options) as url,
        httpx.AsyncClient(base_url=url, timeout=20) as client,
    ):
        yield client
