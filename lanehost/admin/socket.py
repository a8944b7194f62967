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
_NOT_MINE = 0o177


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
    with suppress(OSError):
        # Of an owner that was killed; the folder's lock says that there is no other.
        path.unlink()
    before = os.umask(_NOT_MINE)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError:
        log.warning("admin_socket_missing", path=str(path), reason="it cannot be bound")
    finally:
        os.umask(before)
    await server.start()
    try:
        yield
    finally:
        await server.stop(0)
        with suppress(OSError):
            path.unlink()
