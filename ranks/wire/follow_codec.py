"""Between the messages of agents and the bytes on the wire.

Laws: what is encoded decodes to an equal message; bytes that are none of ours raise
`BadMessage` and never become half a message.
"""

from typing import Any

from google.protobuf.message import DecodeError

from ranks.errors import BadMessage
from ranks.wire import rank_pb2 as pb
from ranks.wire.checks import positive, within
from ranks.wire.follow_messages import (
    AgentMessage,
    ChildExited,
    ChildNotSpawned,
    ChildSight,
    ChildSpawned,
    Dismiss,
    FollowOrder,
    Join,
    SpawnChild,
    StopChild,
)

MAX_STOP_S = 3600.0
# By the name of the field of `oneof`. A plain message and its protobuf class have the same
# fields. Any: the generated classes have no common type.
_FROM_AGENT: dict[str, tuple[Any, Any]] = {
    "join": (Join, pb.Join),
    "child_spawned": (ChildSpawned, pb.ChildSpawned),
    "child_not_spawned": (ChildNotSpawned, pb.ChildNotSpawned),
    "child_exited": (ChildExited, pb.ChildExited),
    "child_sight": (ChildSight, pb.ChildSight),
}
_TO_AGENT: dict[str, tuple[Any, Any]] = {
    "spawn_child": (SpawnChild, pb.SpawnChild),
    "stop_child": (StopChild, pb.StopChild),
    "dismiss": (Dismiss, pb.Dismiss),
}


def encode_agent_message(message: AgentMessage) -> bytes:
    """Encode what an agent says.

    Raises:
        ValueError: A number does not fit its field.
    """
    return _encode(pb.FollowRequest, _FROM_AGENT, message)


def decode_agent_message(payload: bytes) -> AgentMessage:
    """Decode what an agent said.

    Raises:
        BadMessage: The bytes are no message of an agent, or one that breaks its own rules.
    """
    message: AgentMessage = _decode(pb.FollowRequest, _FROM_AGENT, payload)
    match message:
        case Join():
            positive("join.world_size", message.world_size)
        case _:
            positive("life", message.life)
    return message


def encode_follow_order(message: FollowOrder) -> bytes:
    """Encode what the master says to an agent.

    Raises:
        ValueError: A number does not fit its field.
    """
    return _encode(pb.FollowResponse, _TO_AGENT, message)


def decode_follow_order(payload: bytes) -> FollowOrder:
    """Decode what the master said to an agent.

    Raises:
        BadMessage: The bytes are no such message, or one that breaks its own rules.
    """
    message: FollowOrder = _decode(pb.FollowResponse, _TO_AGENT, payload)
    match message:
        case SpawnChild():
            positive("life", message.life)
        case StopChild():
            positive("life", message.life)
            within("stop_child.timeout_s", message.timeout_s, 0.0, MAX_STOP_S)
        case Dismiss():
            pass
    return message


# Any, here and below: see _FROM_AGENT.
def _encode(outer: Any, kinds: dict[str, tuple[Any, Any]], message: Any) -> bytes:
    name = next(name for name, (plain, _) in kinds.items() if plain is type(message))
    fields = {field: getattr(message, field) for field in message.__dataclass_fields__}
    payload: bytes = outer(**{name: kinds[name][1](**fields)}).SerializeToString()
    return payload


def _decode(outer: Any, kinds: dict[str, tuple[Any, Any]], payload: bytes) -> Any:
    try:
        envelope = outer.FromString(payload)
    except DecodeError as err:
        raise BadMessage(f"{len(payload)} bytes are no {outer.DESCRIPTOR.name}") from err
    kind = envelope.WhichOneof("message")
    if kind not in kinds:
        raise BadMessage(f"message is {kind!r}, none that is known here")
    plain, inner = kinds[kind][0], getattr(envelope, kind)
    return plain(**{field: getattr(inner, field) for field in plain.__dataclass_fields__})
