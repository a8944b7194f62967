"""Asks the server that owns a folder of the disk tier."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from lanehost.admin.socket import socket_path
from lanehost.admin.v1 import admin_pb2 as pb
from lanehost.admin.v1.admin_pb2_grpc import AdminServiceStub

_Answer = TypeVar("_Answer")
_TIMEOUT_S = 10.0
# All files are read.
_VERIFY_TIMEOUT_S = 3600.0


class NoAnswer(Exception):
    """No server answers, or not well; the message says how."""


def get_stats(folder: Path) -> pb.GetCacheStatsResponse:
    """Return the figures of its prompt cache.

    Raises:
        NoAnswer: no server owns the folder, or it does not answer.
    """
    with _channel(folder) as channel:
        stats: pb.GetCacheStatsResponse = _ask(
            _stub(channel).GetCacheStats, pb.GetCacheStatsRequest(), _TIMEOUT_S
        )
        return stats


def flush(folder: Path, scope: str | None) -> pb.FlushCacheResponse:
    """Have it forget the prompts of a scope, of all when it is None.

    Raises:
        NoAnswer: as `get_stats`.
    """
    with _channel(folder) as channel:
        flushed: pb.FlushCacheResponse = _ask(
            _stub(channel).FlushCache, pb.FlushCacheRequest(scope=scope), _TIMEOUT_S
        )
        return flushed


def prune(folder: Path, budget_bytes: int) -> pb.PruneCacheResponse:
    """Have it remove entries of least worth until the files take no more than so many bytes.

    Raises:
        NoAnswer: as `get_stats`.
    """
    with _channel(folder) as channel:
        pruned: pb.PruneCacheResponse = _ask(
            _stub(channel).PruneCache, pb.PruneCacheRequest(budget_bytes=budget_bytes), _TIMEOUT_S
        )
        return pruned


def verify(folder: Path) -> pb.VerifyCacheResponse:
    """Have its ranks read all files.

    Raises:
        NoAnswer: as `get_stats`.
    """
    with _channel(folder) as channel:
        verified: pb.VerifyCacheResponse = _ask(
            _stub(channel).VerifyCache, pb.VerifyCacheRequest(), _VERIFY_TIMEOUT_S
        )
        return verified


def _channel(folder: Path) -> grpc.Channel:
    return grpc.insecure_channel(f"unix:{socket_path(folder)}")


def _stub(channel: grpc.Channel) -> AdminServiceStub:
    return AdminServiceStub(channel)  # type: ignore[no-untyped-call]


def _ask(method: Callable[..., _Answer], request: Message, timeout_s: float) -> _Answer:
    try:
        return method(request, timeout=timeout_s)
    except grpc.RpcError as error:
        raise NoAnswer(f"{error.code().name}: {error.details()}") from error
