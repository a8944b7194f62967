"""Build and bind the gRPC server.

A message above 64 MiB is refused by gRPC itself with RESOURCE_EXHAUSTED, before
anything of lanehost sees it; so is a call above `max_concurrent_rpcs`. Neither
status carries ErrorInfo. gRPC holds a message until it is whole, so these two numbers,
multiplied, are about what senders can keep in memory. They are no exact bound: of 2000 calls
opened at once at a bound of 264, grpcio 1.78 held 1132. Once whole, a message that is longer
than the model can need is refused unparsed (door/limits.py).
"""

import errno
import socket
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.reflection import SERVICE_NAME, enable_server_reflection

from lanehost.addresses import explain, format_address
from lanehost.door.interface import Door
from lanehost.errors import StartupFailed
from lanehost.server.health import SERVICE, Health
from lanehost.server.servicer import WRITE_TIMEOUT_S, InferenceServicer
from lanehost.settings import MAX_MESSAGE_BYTES
from lanehost.v1 import inference_pb2

# The default of --max-streams, and room for the calls that run no model.
MAX_CONCURRENT_RPCS = 1024 + 256
_PING_AFTER_MS = 30_000
_PING_TIMEOUT_MS = 10_000
_CLIENT_PING_INTERVAL_MS = 1_000
_OPTIONS = (
    # On by default, and two servers on one port would then both "succeed".
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", _PING_AFTER_MS),
    ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
    # Without this one a peer that is stopped, but whose kernel still acks, is not noticed.
    ("grpc.http2.ping_timeout_ms", _PING_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    # How often a client may ping on a long silent stream before GOAWAY "too_many_pings".
    # (The key with "recv" in its name, often seen, is not read by anything.)
    ("grpc.http2.min_ping_interval_without_data_ms", _CLIENT_PING_INTERVAL_MS),
)


def build_grpc_server(
    door: Door,
    health: Health,
    *,
    reflection: bool,
    max_concurrent_rpcs: int = MAX_CONCURRENT_RPCS,
    write_timeout_s: float = WRITE_TIMEOUT_S,
) -> grpc.aio.Server:
    """Build a server with the services in it; it is neither bound nor started.

    Call it inside the event loop that will run the server.
    """
    server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=max_concurrent_rpcs)
    _add_servicer(server, InferenceServicer(door, write_timeout_s=write_timeout_s))
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    if reflection:
        _enable_reflection(server)
    return server


def bind_grpc(server: grpc.aio.Server, host: str, port: int) -> int:
    """Bind the server and return its port; 0 takes a free one.

    Raises:
        StartupFailed: the address cannot be had.
    """
    address = format_address(host, port)
    _refuse_taken(address, host, port)
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError as error:
        raise _cannot_listen(address, "gRPC does not say why") from error
    if bound == 0:
        raise _cannot_listen(address, "gRPC does not say why")
    return bound


def _cannot_listen(address: str, why: str) -> StartupFailed:
    return StartupFailed(f"cannot listen for gRPC on {address}: {why} (--host, --port)")


def _add_servicer(server: grpc.aio.Server, servicer: InferenceServicer) -> None:
    """Register every method that the proto names; the servicer takes bytes (see there)."""
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {  # each method has its own two
        method.name: _HANDLERS[method.client_streaming, method.server_streaming](
            getattr(servicer, method.name),
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )
        for method in inference_pb2.DESCRIPTOR.services_by_name["InferenceService"].methods
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


# Whether the client streams, whether the server does → what makes the handler; no method of ours
# streams both ways.
_HANDLERS: dict[tuple[bool, bool], Callable[..., Any]] = {  # each makes a handler of its own two
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
}


def _enable_reflection(server: grpc.aio.Server) -> None:
    names = (SERVICE, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)
    enable_server_reflection((*names, SERVICE_NAME), server)


def _refuse_taken(address: str, host: str, port: int) -> None:
    """Refuse an address of which a part is taken.

    gRPC is content when one of the addresses of a name (127.0.0.1 and ::1 of
    localhost) can be bound, and half of the clients would reach someone else.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise _cannot_listen(address, explain(error)) from error
    for family, kind, protocol, _, sockaddr in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(sockaddr)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                raise _cannot_listen(address, explain(error)) from error
