"""Between plain messages and the bytes on the wire; nobody else knows the protobuf classes.

Laws: what is encoded decodes to an equal message (temperatures and the like pass
through 32-bit floats); bytes that are no message of ours raise `BadMessage` and
never become half a message.
"""

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from ranks.errors import BadMessage
from ranks.plan import StepPlan, StepRefused, StepResult
from ranks.wire import rank_pb2 as pb
from ranks.wire.checks import positive, within
from ranks.wire.file_codec import done_from_pb, done_to_pb, order_from_pb, order_to_pb
from ranks.wire.file_messages import FileDone, FileOrder
from ranks.wire.image_codec import (
    facts_from_pb,
    facts_to_pb,
    image_done_from_pb,
    image_done_to_pb,
    image_order_from_pb,
    image_order_to_pb,
)
from ranks.wire.image_messages import ImageDone, ImageOrder
from ranks.wire.messages import (
    Broken,
    Fatal,
    Form,
    Heartbeat,
    Hello,
    Leave,
    Left,
    Load,
    Loaded,
    LoadProgress,
    MasterMessage,
    RankMessage,
    Ready,
    Shutdown,
)
from ranks.wire.step_codec import (
    plan_from_pb,
    plan_to_pb,
    refused_from_pb,
    refused_to_pb,
    result_from_pb,
    result_to_pb,
)


def encode_rank_message(message: RankMessage) -> bytes:
    """Encode what a rank says.

    Raises:
        ValueError: A number does not fit its field.
    """
    name, to_pb = _RANK_ENCODERS[type(message)]
    return pb.ConnectRequest(**{name: to_pb(message)}).SerializeToString()


def decode_rank_message(payload: bytes) -> RankMessage:
    """Decode what a rank said.

    Raises:
        BadMessage: The bytes are no message of a rank, or one that breaks its own rules.
    """
    request = _parse(pb.ConnectRequest, payload)
    kind = request.WhichOneof("message")
    decode = _RANK_DECODERS.get(kind or "")
    if decode is None:
        raise BadMessage(f"message is {kind!r}, no message of a rank")
    return decode(getattr(request, str(kind)))


def encode_master_message(message: MasterMessage) -> bytes:
    """Encode what the master says; the same bytes may go to every rank.

    Raises:
        ValueError: A number does not fit its field.
    """
    name, to_pb = _MASTER_ENCODERS[type(message)]
    return pb.ConnectResponse(**{name: to_pb(message)}).SerializeToString()


def decode_master_message(payload: bytes) -> MasterMessage:
    """Decode what the master said.

    Raises:
        BadMessage: The bytes are no message of the master, or one that breaks its own rules.
    """
    response = _parse(pb.ConnectResponse, payload)
    kind = response.WhichOneof("message")
    decode = _MASTER_DECODERS.get(kind or "")
    if decode is None:
        raise BadMessage(f"message is {kind!r}, no message of the master")
    return decode(getattr(response, str(kind)))


# Any: the generated classes have no common type that names ParseFromString for mypy.
def _parse(pb_class: Any, payload: bytes) -> Any:
    try:
        return pb_class.FromString(payload)
    except DecodeError as err:
        raise BadMessage(f"{len(payload)} bytes are no {pb_class.DESCRIPTOR.name}") from err


# Any: a plain message and its protobuf class that have the same field names.
def _same_fields(pb_class: Any) -> Callable[[Any], Any]:
    def to_pb(message: Any) -> Any:
        names = message.__dataclass_fields__
        return pb_class(**{name: getattr(message, name) for name in names})

    return to_pb


def _hello_from_pb(hello: pb.Hello) -> Hello:
    return Hello(
        rank=hello.rank,
        world_size=positive("hello.world_size", hello.world_size),
        pid=hello.pid,
        build=hello.build,
        token=hello.token,
    )


def _loaded_to_pb(loaded: Loaded) -> pb.Loaded:
    names = set(Loaded.__dataclass_fields__) - {"image_facts"}
    found = pb.Loaded(**{name: getattr(loaded, name) for name in names})
    if loaded.image_facts is not None:
        found.image_facts.CopyFrom(facts_to_pb(loaded.image_facts))
    return found


def _loaded_from_pb(loaded: pb.Loaded) -> Loaded:
    return Loaded(
        weights_digest=loaded.weights_digest,
        config_digest=loaded.config_digest,
        geometry=loaded.geometry,
        vocab_size=positive("loaded.vocab_size", loaded.vocab_size),
        context_length=positive("loaded.context_length", loaded.context_length),
        kv_bytes_per_block=positive("loaded.kv_bytes_per_block", loaded.kv_bytes_per_block),
        step_bytes=loaded.step_bytes,
        step_bytes_per_block=loaded.step_bytes_per_block,
        free_bytes=loaded.free_bytes,
        dtype=loaded.dtype,
        device=loaded.device,
        collective=loaded.collective,
        weights=loaded.weights,
        kv_layout=loaded.kv_layout,
        num_layers=positive("loaded.num_layers", loaded.num_layers),
        image_facts=(facts_from_pb(loaded.image_facts) if loaded.HasField("image_facts") else None),
    )


def _load_from_pb(load: pb.Load) -> Load:
    return Load(
        model_path=load.model_path,
        dtype=load.dtype,
        device=load.device,
        num_threads=load.num_threads if load.HasField("num_threads") else None,
        block_size=positive("load.block_size", load.block_size),
        max_step_tokens=positive("load.max_step_tokens", load.max_step_tokens),
        num_lanes=positive("load.num_lanes", load.num_lanes),
        weights=load.weights,
        max_staged_tokens=load.max_staged_tokens,
        image_cache_tokens=load.image_cache_tokens,
        encoder_device=load.encoder_device,
    )


def _form_from_pb(form: pb.Form) -> Form:
    return Form(
        epoch=positive("form.epoch", form.epoch),
        num_blocks=positive("form.num_blocks", form.num_blocks),
        block_size=positive("form.block_size", form.block_size),
        num_lanes=positive("form.num_lanes", form.num_lanes),
        max_step_tokens=positive("form.max_step_tokens", form.max_step_tokens),
        collective_timeout_s=within(
            "form.collective_timeout_s", form.collective_timeout_s, 0.001, 86400.0
        ),
        disk_folder=form.disk_folder if form.HasField("disk_folder") else None,
        max_staged_tokens=form.max_staged_tokens,
        image_cache_tokens=form.image_cache_tokens,
    )


def _broken_from_pb(broken: pb.Broken) -> Broken:
    return Broken(
        epoch=positive("broken.epoch", broken.epoch),
        suspect=broken.suspect if broken.HasField("suspect") else None,
        reason=broken.reason,
    )


# Any: each takes the one class of its own kind. The names are those of the fields of `oneof`.
_RANK_ENCODERS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    Hello: ("hello", _same_fields(pb.Hello)),
    LoadProgress: ("load_progress", _same_fields(pb.LoadProgress)),
    Loaded: ("loaded", _loaded_to_pb),
    Ready: ("ready", _same_fields(pb.Ready)),
    StepResult: ("result", result_to_pb),
    StepRefused: ("refused", refused_to_pb),
    Heartbeat: ("heartbeat", _same_fields(pb.Heartbeat)),
    Broken: ("broken", _same_fields(pb.Broken)),
    Left: ("left", _same_fields(pb.Left)),
    Fatal: ("fatal", _same_fields(pb.Fatal)),
    FileDone: ("file_done", done_to_pb),
    ImageDone: ("image_done", image_done_to_pb),
}
_MASTER_ENCODERS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    Load: ("load", _same_fields(pb.Load)),
    Form: ("form", _same_fields(pb.Form)),
    StepPlan: ("plan", plan_to_pb),
    Leave: ("leave", _same_fields(pb.Leave)),
    Shutdown: ("shutdown", _same_fields(pb.Shutdown)),
    FileOrder: ("file_order", order_to_pb),
    ImageOrder: ("image_order", image_order_to_pb),
}
_RANK_DECODERS: dict[str, Callable[[Any], RankMessage]] = {
    "hello": _hello_from_pb,
    "load_progress": lambda progress: LoadProgress(
        done_bytes=progress.done_bytes, total_bytes=progress.total_bytes
    ),
    "loaded": _loaded_from_pb,
    "ready": lambda ready: Ready(epoch=positive("ready.epoch", ready.epoch)),
    "result": result_from_pb,
    "refused": refused_from_pb,
    "heartbeat": lambda beat: Heartbeat(step_id=beat.step_id, num_stages=beat.num_stages),
    "broken": _broken_from_pb,
    "left": lambda left: Left(epoch=positive("left.epoch", left.epoch)),
    "fatal": lambda fatal: Fatal(message=fatal.message),
    "file_done": done_from_pb,
    "image_done": image_done_from_pb,
}
_MASTER_DECODERS: dict[str, Callable[[Any], MasterMessage]] = {
    "load": _load_from_pb,
    "form": _form_from_pb,
    "plan": plan_from_pb,
    "leave": lambda leave: Leave(epoch=positive("leave.epoch", leave.epoch)),
    "shutdown": lambda shutdown: Shutdown(reason=shutdown.reason),
    "file_order": order_from_pb,
    "image_order": image_order_from_pb,
}
