"""Works on files, between plain data and protobuf, for `codec` alone.

Law: a digest on the wire has 32 bytes, so that a name of a file is made of hex digits alone.
"""

from collections.abc import Callable, Iterable
from typing import Any

from ranks.errors import BadMessage
from ranks.wire import rank_pb2 as pb
from ranks.wire.checks import known, positive
from ranks.wire.file_messages import (
    AdoptFile,
    CheckFile,
    DeleteFiles,
    DropFile,
    FileDone,
    FileFault,
    FileHeader,
    FileName,
    FileOrder,
    FileWork,
    SaveFile,
    SetAside,
    SweepFiles,
)

_DIGEST_BYTES = 32
_PB_TO_FAULT: dict[int, FileFault] = {
    int(pb.FileFault.Value(f"FILE_FAULT_{fault.name}")): fault for fault in FileFault
}


def order_to_pb(order: FileOrder) -> pb.FileOrder:
    """Turn a work into protobuf, for the wire.

    Raises:
        ValueError: A digest is none, or a number does not fit its field.
    """
    name, to_pb = _WORK_TO_PB[type(order.work)]
    return pb.FileOrder(order_id=order.order_id, epoch=order.epoch, **{name: to_pb(order.work)})


def order_from_pb(order: pb.FileOrder) -> FileOrder:
    """Take a work from the wire.

    Raises:
        BadMessage: A field breaks its own rules.
    """
    kind = order.WhichOneof("work")
    if kind is None:
        raise BadMessage("file_order.work is absent")
    return FileOrder(
        order_id=positive("file_order.order_id", order.order_id),
        epoch=positive("file_order.epoch", order.epoch),
        work=_WORK_FROM_PB[kind](getattr(order, kind)),
    )


def done_to_pb(done: FileDone) -> pb.FileDone:
    """Turn what became of a work into protobuf, for the wire."""
    return pb.FileDone(
        order_id=done.order_id,
        epoch=done.epoch,
        fault=None if done.fault is None else f"FILE_FAULT_{done.fault.name}",
        message=done.message,
        num_bytes=done.num_bytes,
        took_ns=done.took_ns,
    )


def done_from_pb(done: pb.FileDone) -> FileDone:
    """Take what became of a work from the wire.

    Raises:
        BadMessage: A field breaks its own rules.
    """
    return FileDone(
        order_id=positive("file_done.order_id", done.order_id),
        epoch=positive("file_done.epoch", done.epoch),
        fault=known("file_done.fault", done.fault, _PB_TO_FAULT) if done.fault else None,
        message=done.message,
        num_bytes=done.num_bytes,
        took_ns=done.took_ns,
    )


def _digest_to_pb(digest: str) -> bytes:
    if len(digest) != 2 * _DIGEST_BYTES:
        raise ValueError(f"a digest is {digest!r}, it has {2 * _DIGEST_BYTES} hex digits")
    return bytes.fromhex(digest)


def _digest_from_pb(field: str, value: bytes) -> str:
    if len(value) != _DIGEST_BYTES:
        raise BadMessage(f"{field} has {len(value)} bytes, there are {_DIGEST_BYTES}")
    return value.hex()


def _name_to_pb(name: FileName) -> pb.FileName:
    return pb.FileName(layout=_digest_to_pb(name.layout), key=_digest_to_pb(name.key))


def _name_from_pb(name: pb.FileName) -> FileName:
    return FileName(
        layout=_digest_from_pb("file_name.layout", name.layout),
        key=_digest_from_pb("file_name.key", name.key),
    )


def _names_from_pb(names: Iterable[pb.FileName]) -> tuple[FileName, ...]:
    return tuple(_name_from_pb(name) for name in names)


def _header_to_pb(header: FileHeader) -> pb.FileHeader:
    return pb.FileHeader(
        name=_name_to_pb(header.name),
        num_tokens=header.num_tokens,
        tokens_digest=_digest_to_pb(header.tokens_digest),
    )


def _header_from_pb(header: pb.FileHeader) -> FileHeader:
    return FileHeader(
        name=_name_from_pb(header.name),
        num_tokens=positive("file_header.num_tokens", header.num_tokens),
        tokens_digest=_digest_from_pb("file_header.tokens_digest", header.tokens_digest),
    )


# Any: each takes the one class of its own kind. The names are those of the fields of `oneof`.
_WORK_TO_PB: dict[type, tuple[str, Callable[[Any], Any]]] = {
    SaveFile: (
        "save",
        lambda work: pb.SaveFile(header=_header_to_pb(work.header), block_ids=work.block_ids),
    ),
    CheckFile: ("check", lambda work: pb.CheckFile(header=_header_to_pb(work.header))),
    AdoptFile: (
        "adopt",
        lambda work: pb.AdoptFile(header=_header_to_pb(work.header), block_ids=work.block_ids),
    ),
    DropFile: ("drop", lambda work: pb.DropFile(name=_name_to_pb(work.name))),
    DeleteFiles: ("delete", lambda work: pb.DeleteFiles(names=map(_name_to_pb, work.names))),
    SetAside: ("set_aside", lambda work: pb.SetAside(names=map(_name_to_pb, work.names))),
    SweepFiles: ("sweep", lambda work: pb.SweepFiles(known=map(_name_to_pb, work.known))),
}
_WORK_FROM_PB: dict[str, Callable[[Any], FileWork]] = {
    "save": lambda work: SaveFile(
        header=_header_from_pb(work.header), block_ids=tuple(work.block_ids)
    ),
    "check": lambda work: CheckFile(header=_header_from_pb(work.header)),
    "adopt": lambda work: AdoptFile(
        header=_header_from_pb(work.header), block_ids=tuple(work.block_ids)
    ),
    "drop": lambda work: DropFile(name=_name_from_pb(work.name)),
    "delete": lambda work: DeleteFiles(names=_names_from_pb(work.names)),
    "set_aside": lambda work: SetAside(names=_names_from_pb(work.names)),
    "sweep": lambda work: SweepFiles(known=_names_from_pb(work.known)),
}
