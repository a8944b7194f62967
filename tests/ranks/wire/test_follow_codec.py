"""Messages of agents cross the wire, and nothing else does."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranks.errors import BadMessage
from ranks.wire import rank_pb2 as pb
from ranks.wire.follow_codec import (
    decode_agent_message,
    decode_follow_order,
    encode_agent_message,
    encode_follow_order,
)
from ranks.wire.follow_messages import (
    ChildExited,
    ChildNotSpawned,
    ChildSight,
    ChildSpawned,
    Dismiss,
    Join,
    SpawnChild,
    StopChild,
)

LIVES = st.integers(1, 2**32 - 1)
FROM_AGENT = st.one_of(
    st.builds(
        Join, rank=st.integers(0, 99), world_size=LIVES, pid=LIVES, build=st.text(),
        node_id=st.text(), host=st.text(), model_path=st.text(),
    ),
    st.builds(ChildSpawned, life=LIVES, pid=LIVES),
    st.builds(ChildNotSpawned, life=LIVES, reason=st.text()),
    st.builds(ChildExited, life=LIVES, exit_code=st.integers(-64, 255)),
    st.builds(ChildSight, life=LIVES, is_stopped=st.booleans(), cpu_ticks=st.integers(0, 2**63)),
)  # fmt: skip
TO_AGENT = st.one_of(
    st.builds(SpawnChild, life=LIVES, token=st.text()),
    st.builds(StopChild, life=LIVES, timeout_s=st.floats(0, 3600)),
    st.builds(Dismiss, reason=st.text(), is_failure=st.booleans()),
)


@given(FROM_AGENT)
def test_what_an_agent_says_arrives(message):
    assert decode_agent_message(encode_agent_message(message)) == message


@given(TO_AGENT)
def test_what_it_is_told_arrives(message):
    assert decode_follow_order(encode_follow_order(message)) == message


@given(st.binary(max_size=40))
def test_any_bytes_are_a_message_or_a_typed_error(payload):
    for decode in (decode_agent_message, decode_follow_order):
        with contextlib.suppress(BadMessage):
            decode(payload)


@pytest.mark.parametrize(
    ("decode", "message", "says"),
    [
        (decode_agent_message, pb.FollowRequest(), "message is None"),
        (decode_agent_message, pb.FollowRequest(join=pb.Join()), "join.world_size is 0"),
        (
            decode_agent_message,
            pb.FollowRequest(child_exited=pb.ChildExited()),
            "life is 0, the least is 1",
        ),
        (decode_follow_order, pb.FollowResponse(spawn_child=pb.SpawnChild()), "life is 0"),
        (
            decode_follow_order,
            pb.FollowResponse(stop_child=pb.StopChild(life=1, timeout_s=float("nan"))),
            "stop_child.timeout_s is nan, allowed is 0.0 to 3600.0",
        ),
    ],
)
def test_half_a_message_is_refused_by_its_field(decode, message, says):
    with pytest.raises(BadMessage, match=says):
        decode(message.SerializeToString())


def test_the_token_is_in_no_log():
    assert "secret" not in repr(SpawnChild(life=1, token="secret"))
