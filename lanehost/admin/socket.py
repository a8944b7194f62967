"""The socket of the admin service: in the folder of the disk tier, for its user alone."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc.aio
import structlog

from lanehost.admin.servicer import AdminServicer
from lanehost.admin.v1.admin_pb2_grpc import add_AdminServiceServicer_to_server

log = structlog.get_logger()

SOCKET_NAME = "admin.sock"
# What the system takes as the path of a socket, with its end.
_MAX_PATH_BYTES = 107
# Where it is bound, so that nobody else reaches it before its mode is set.
_PRIVATE = ".a"


def socket_path(folder: Path) -> Path:
    """Return where the socket of the server is that owns a folder."""
    return folder.absolute() / SOCKET_NAME


@asynccontextmanager
async def serving_admin(folder: Path, servicer: AdminServicer) -> AsyncIterator[None]:
    """Answer operators as long as the block runs; without, where there can be no socket."""
    path = socket_path(folder)
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        reason = f"its path has more than {_MAX_PATH_BYTES} bytes"
        log.warning("admin_socket_missing", path=str(path), reason=reason)
        yield
        return
    server = grpc.aio.server()
    add_AdminServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    try:
        _bind(server, path)
    except (RuntimeError, OSError):
        log.warning("admin_socket_missing", path=str(path), reason="it cannot be bound")
    await server.start()
    try:
        yield
    finally:
        await server.stop(0)
        with suppress(OSError):
            path.unlink()


def _bind(server: grpc.aio.Server, path: Path) -> None:
    """Bind it where others cannot look, and move it; what is there is of an owner that is gone.

    Raises:
        RuntimeError: gRPC cannot.
        OSError: the system cannot.
    """
    private = path.parent / _PRIVATE
    bound = private / "s"
    private.mkdir(mode=0o700, exist_ok=True)
    try:
        private.chmod(0o700)
        bound.unlink(missing_ok=True)
        server.add_insecure_port(f"unix:{bound}")
        bound.chmod(0o600)
        bound.replace(path)
    finally:
        with suppress(OSError):
            private.rmdir()
