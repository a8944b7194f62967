"""A gRPC server over a fake door on a free port of the loopback, for one test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc

from lanehost.server.grpc_server import bind_grpc, build_grpc_server
from lanehost.server.health import Health
from lanehost.v1 import inference_pb2_grpc
from tests.support.fake_door import FakeDoor

BIG_MESSAGES = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a test needs of a running server."""

    server: grpc.aio.Server
    health: Health
    address: str
    channel: grpc.aio.Channel
    stub: inference_pb2_grpc.InferenceServiceStub


@asynccontextmanager
async def serve(door: FakeDoor, **options: int | bool) -> AsyncIterator[Served]:
    """Serve the door; `options` go to `build_grpc_server`."""
    health = Health()
    health.set_serving()
    server = build_grpc_server(door, health, **{"reflection": False, **options})
    address = f"127.0.0.1:{bind_grpc(server, '127.0.0.1', 0)}"
    await server.start()
    try:
        async with grpc.aio.insecure_channel(address, options=BIG_MESSAGES) as channel:
            yield Served(
                server=server,
                health=health,
                address=address,
                channel=channel,
                stub=inference_pb2_grpc.InferenceServiceStub(channel),
            )
    finally:
        await server.stop(None)
