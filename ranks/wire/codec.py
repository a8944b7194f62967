"""Between plain messages and the bytes on the wire; nobody else knows the protobuf classes.

Laws: what is encoded decodes to an equal message (temperatures and the like pass
through 32-bit floats); bytes that are no message of ours raise `BadMessage` and
never become half a message.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, assert_never

from google.protobuf.message import DecodeError

from ranks.errors import BadMessage
from ranks.plan import (
    Chunk,
    Draw,
    LaneDraft,
    LaneFault,
    LaneGrow,
    LaneJoin,
    RefusalKind,
    StepPlan,
    StepRefused,
    StepResult,
)
from ranks.wire import rank_pb2 as pb
from ranks.wire.messages import (
    Fatal,
    Form,
    Hello,
    Load,
    Loaded,
    LoadProgress,
    MasterMessage,
    RankMessage,
    Ready,
    Shutdown,
)

DIGEST_BYTES = 16
# A top_p below it would become 0 in the 32 bits of the wire, which is no top_p.
_LEAST_TOP_P = 2.0**-149

_Word = TypeVar("_Word")
_FAULT_TO_PB = {LaneFault.NAN: pb.LANE_FAULT_NAN}
_PB_TO_FAULT: dict[int, LaneFault] = {int(pb.LANE_FAULT_NAN): LaneFault.NAN}
_KIND_TO_PB = {
    RefusalKind.MISMATCH: pb.REFUSAL_KIND_MISMATCH,
    RefusalKind.FAILED: pb.REFUSAL_KIND_FAILED,
    RefusalKind.SKIPPED: pb.REFUSAL_KIND_SKIPPED,
}
_PB_TO_KIND: dict[int, RefusalKind] = {int(number): kind for kind, number in _KIND_TO_PB.items()}


def encode_rank_message(message: RankMessage) -> bytes:
    """Encode what a rank says.

    Raises:
        ValueError: A number does not fit its field.
    """
    match message:
        case StepResult():
            request = pb.ConnectRequest(result=_result_to_pb(message))
        case StepRefused():
            request = pb.ConnectRequest(refused=_refused_to_pb(message))
        case LoadProgress():
            request = pb.ConnectRequest(load_progress=_same_fields(pb.LoadProgress, message))
        case Hello():
            request = pb.ConnectRequest(hello=_same_fields(pb.Hello, message))
        case Loaded():
            request = pb.ConnectRequest(loaded=_same_fields(pb.Loaded, message))
        case Ready():
            request = pb.ConnectRequest(ready=pb.Ready(epoch=message.epoch))
        case Fatal():
            request = pb.ConnectRequest(fatal=pb.Fatal(message=message.message))
        case _:
            assert_never(message)
    return request.SerializeToString()


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
    match message:
        case StepPlan():
            response = pb.ConnectResponse(plan=_plan_to_pb(message))
        case Load():
            response = pb.ConnectResponse(load=_same_fields(pb.Load, message))
        case Form():
            response = pb.ConnectResponse(form=_same_fields(pb.Form, message))
        case Shutdown():
            response = pb.ConnectResponse(shutdown=pb.Shutdown(reason=message.reason))
        case _:
            assert_never(message)
    return response.SerializeToString()


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
def _same_fields(pb_class: Any, message: Any) -> Any:
    names = message.__dataclass_fields__
    return pb_class(**{name: getattr(message, name) for name in names})


def _plan_to_pb(plan: StepPlan) -> pb.StepPlan:
    return pb.StepPlan(
        step_id=plan.step_id,
        epoch=plan.epoch,
        follows=plan.follows,
        leaves=plan.leaves,
        joins=[
            pb.LaneJoin(
                lane_id=join.lane_id,
                draw=_draw_to_pb(join.draw),
                num_cached_tokens=join.num_cached_tokens,
            )
            for join in plan.joins
        ],
        grows=[pb.LaneGrow(lane_id=grow.lane_id, block_ids=grow.block_ids) for grow in plan.grows],
        chunks=[
            pb.Chunk(
                lane_id=chunk.lane_id,
                start=chunk.start,
                token_ids=chunk.token_ids,
                draws=chunk.draws,
            )
            for chunk in plan.chunks
        ],
        decodes=plan.decodes,
        drafts=[
            pb.LaneDraft(lane_id=draft.lane_id, token_ids=draft.token_ids) for draft in plan.drafts
        ],
        digest=plan.digest,
    )


def _plan_from_pb(plan: pb.StepPlan) -> StepPlan:
    return StepPlan(
        step_id=_positive("plan.step_id", plan.step_id),
        epoch=_positive("plan.epoch", plan.epoch),
        follows=plan.follows,
        leaves=tuple(plan.leaves),
        joins=tuple(
            LaneJoin(
                lane_id=join.lane_id,
                draw=_draw_from_pb(join),
                num_cached_tokens=join.num_cached_tokens,
            )
            for join in plan.joins
        ),
        grows=tuple(
            LaneGrow(lane_id=grow.lane_id, block_ids=tuple(grow.block_ids)) for grow in plan.grows
        ),
        chunks=tuple(
            Chunk(
                lane_id=chunk.lane_id,
                start=chunk.start,
                token_ids=tuple(chunk.token_ids),
                draws=chunk.draws,
            )
            for chunk in plan.chunks
        ),
        decodes=tuple(plan.decodes),
        drafts=tuple(
            LaneDraft(lane_id=draft.lane_id, token_ids=tuple(draft.token_ids))
            for draft in plan.drafts
        ),
        digest=_digest("plan.digest", plan.digest),
    )


def _draw_to_pb(draw: Draw) -> pb.Draw:
    if draw.top_k is not None and draw.top_k < 1:
        raise ValueError(f"draw.top_k is {draw.top_k}, allowed is None or at least 1")
    return pb.Draw(
        temperature=draw.temperature,
        top_p=max(draw.top_p, _LEAST_TOP_P),
        top_k=draw.top_k or 0,
        min_p=draw.min_p,
        seed=draw.seed,
    )


def _draw_from_pb(join: pb.LaneJoin) -> Draw:
    if not join.HasField("draw"):
        raise BadMessage(f"join.draw is absent for lane {join.lane_id}")
    draw = join.draw
    return Draw(
        temperature=_within("draw.temperature", draw.temperature, 0.0, float("inf")),
        top_p=_within("draw.top_p", draw.top_p, _LEAST_TOP_P, 1.0),
        top_k=draw.top_k or None,
        min_p=_within("draw.min_p", draw.min_p, 0.0, 1.0),
        seed=draw.seed,
    )


def _result_to_pb(result: StepResult) -> pb.StepResult:
    return pb.StepResult(
        step_id=result.step_id,
        epoch=result.epoch,
        drawn=[
            pb.Drawn(lane_id=lane_id, token_id=token_id)
            for lane_id, token_id in result.drawn.items()
        ],
        failures=[
            pb.LaneFailure(lane_id=lane_id, fault=_FAULT_TO_PB[fault])
            for lane_id, fault in result.failures.items()
        ],
        accepted=[
            pb.DraftAccepted(lane_id=lane_id, token_ids=token_ids)
            for lane_id, token_ids in result.accepted.items()
        ],
        digest=result.digest,
        compute_ns=result.compute_ns,
    )


def _result_from_pb(result: pb.StepResult) -> StepResult:
    drawn_ids = [drawn.lane_id for drawn in result.drawn]
    _distinct("result lanes", drawn_ids + [failure.lane_id for failure in result.failures])
    _distinct("result.accepted lanes", [accepted.lane_id for accepted in result.accepted])
    return StepResult(
        step_id=_positive("result.step_id", result.step_id),
        epoch=_positive("result.epoch", result.epoch),
        drawn={drawn.lane_id: drawn.token_id for drawn in result.drawn},
        failures={
            failure.lane_id: _known("failure.fault", failure.fault, _PB_TO_FAULT)
            for failure in result.failures
        },
        accepted={part.lane_id: tuple(part.token_ids) for part in result.accepted},
        digest=_digest("result.digest", result.digest),
        compute_ns=result.compute_ns,
    )


def _refused_to_pb(refused: StepRefused) -> pb.StepRefused:
    return pb.StepRefused(
        step_id=refused.step_id,
        epoch=refused.epoch,
        kind=_KIND_TO_PB[refused.kind],
        reason=refused.reason,
    )


def _refused_from_pb(refused: pb.StepRefused) -> StepRefused:
    return StepRefused(
        step_id=_positive("refused.step_id", refused.step_id),
        epoch=_positive("refused.epoch", refused.epoch),
        kind=_known("refused.kind", refused.kind, _PB_TO_KIND),
        reason=refused.reason,
    )


def _hello_from_pb(hello: pb.Hello) -> Hello:
    return Hello(
        rank=hello.rank,
        world_size=_positive("hello.world_size", hello.world_size),
        pid=hello.pid,
        build=hello.build,
        token=hello.token,
    )


def _loaded_from_pb(loaded: pb.Loaded) -> Loaded:
    return Loaded(
        weights_digest=loaded.weights_digest,
        config_digest=loaded.config_digest,
        geometry=loaded.geometry,
        vocab_size=_positive("loaded.vocab_size", loaded.vocab_size),
        context_length=_positive("loaded.context_length", loaded.context_length),
        kv_bytes_per_block=_positive("loaded.kv_bytes_per_block", loaded.kv_bytes_per_block),
        step_bytes=loaded.step_bytes,
        step_bytes_per_block=loaded.step_bytes_per_block,
        free_bytes=loaded.free_bytes,
        dtype=loaded.dtype,
        device=loaded.device,
        collective=loaded.collective,
    )


def _load_from_pb(load: pb.Load) -> Load:
    return Load(
        model_path=load.model_path,
        dtype=load.dtype,
        device=load.device,
        num_threads=load.num_threads if load.HasField("num_threads") else None,
        block_size=_positive("load.block_size", load.block_size),
        max_step_tokens=_positive("load.max_step_tokens", load.max_step_tokens),
        num_lanes=_positive("load.num_lanes", load.num_lanes),
    )


def _form_from_pb(form: pb.Form) -> Form:
    return Form(
        epoch=_positive("form.epoch", form.epoch),
        num_blocks=_positive("form.num_blocks", form.num_blocks),
        block_size=_positive("form.block_size", form.block_size),
        num_lanes=_positive("form.num_lanes", form.num_lanes),
        max_step_tokens=_positive("form.max_step_tokens", form.max_step_tokens),
        collective_timeout_s=_within(
            "form.collective_timeout_s", form.collective_timeout_s, 0.001, 86400.0
        ),
    )


# Any: each decoder takes the one protobuf class of its own kind.
_RANK_DECODERS: dict[str, Callable[[Any], RankMessage]] = {
    "hello": _hello_from_pb,
    "load_progress": lambda progress: LoadProgress(
        done_bytes=progress.done_bytes, total_bytes=progress.total_bytes
    ),
    "loaded": _loaded_from_pb,
    "ready": lambda ready: Ready(epoch=_positive("ready.epoch", ready.epoch)),
    "result": _result_from_pb,
    "refused": _refused_from_pb,
    "fatal": lambda fatal: Fatal(message=fatal.message),
}
_MASTER_DECODERS: dict[str, Callable[[Any], MasterMessage]] = {
    "load": _load_from_pb,
    "form": _form_from_pb,
    "plan": _plan_from_pb,
    "shutdown": lambda shutdown: Shutdown(reason=shutdown.reason),
}


def _positive(field: str, value: int) -> int:
    if value < 1:
        raise BadMessage(f"{field} is {value}, the least is 1")
    return value


def _within(field: str, value: float, low: float, high: float) -> float:
    # Written so that a NaN is refused as well.
    if not low <= value <= high or value == float("inf"):
        raise BadMessage(f"{field} is {value}, allowed is {low} to {high}")
    return value


def _digest(field: str, value: bytes) -> bytes:
    if len(value) != DIGEST_BYTES:
        raise BadMessage(f"{field} has {len(value)} bytes, a digest has {DIGEST_BYTES}")
    return value


def _distinct(field: str, lane_ids: Iterable[int]) -> None:
    seen: set[int] = set()
    for lane_id in lane_ids:
        if lane_id in seen:
            raise BadMessage(f"{field}: lane {lane_id} is there twice")
        seen.add(lane_id)


def _known(field: str, number: int, known: dict[int, _Word]) -> _Word:
    word = known.get(number)
    if word is None:
        raise BadMessage(f"{field} is {number}, known are {sorted(known)}")
    return word
