"""The codec: equal messages after the wire, or BadMessage; never half a message."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranks.errors import BadMessage
from ranks.wire import rank_pb2 as pb
from ranks.wire.codec import (
    decode_master_message,
    decode_rank_message,
    encode_master_message,
    encode_rank_message,
)
from tests.support.rank_strategies import master_messages, rank_messages

D = bytes(16)


@given(master_messages)
def test_what_the_master_says_arrives_equal(message):
    assert decode_master_message(encode_master_message(message)) == message


@given(rank_messages)
def test_what_a_rank_says_arrives_equal(message):
    assert decode_rank_message(encode_rank_message(message)) == message


@given(st.binary(max_size=60))
def test_any_bytes_give_a_message_or_bad_message(payload):
    for decode in (decode_master_message, decode_rank_message):
        try:
            message = decode(payload)
        except BadMessage:
            continue
        assert dataclasses.is_dataclass(message)


@given(master_messages)
def test_a_message_of_the_master_cut_short_is_never_taken_as_whole(message):
    payload = encode_master_message(message)
    for end in range(len(payload)):
        try:
            assert decode_master_message(payload[:end]) != message
        except BadMessage:
            continue


@pytest.mark.parametrize(
    ("broken", "names"),
    [
        (pb.ConnectResponse(), "None"),
        (pb.ConnectResponse(plan=pb.StepPlan(step_id=0, epoch=1, digest=D)), "plan.step_id is 0"),
        (pb.ConnectResponse(plan=pb.StepPlan(step_id=1, epoch=0, digest=D)), "plan.epoch is 0"),
        (
            pb.ConnectResponse(plan=pb.StepPlan(step_id=1, epoch=1, digest=b"short")),
            "plan.digest has 5 bytes",
        ),
        (
            pb.ConnectResponse(
                plan=pb.StepPlan(step_id=1, epoch=1, digest=D, joins=[pb.LaneJoin(lane_id=3)])
            ),
            "draw is absent for lane 3",
        ),
        (pb.ConnectResponse(load=pb.Load(model_path="x")), "load.block_size is 0"),
        (pb.ConnectResponse(load=pb.Load(block_size=1)), "load.max_step_tokens is 0"),
        (
            pb.ConnectResponse(load=pb.Load(block_size=1, max_step_tokens=1)),
            "load.num_lanes is 0",
        ),
        (
            pb.ConnectResponse(
                form=pb.Form(
                    epoch=1,
                    num_blocks=1,
                    block_size=1,
                    num_lanes=1,
                    max_step_tokens=1,
                    collective_timeout_s=float("nan"),
                )
            ),
            "collective_timeout_s is nan",
        ),
    ],
)
def test_a_broken_message_of_the_master_is_refused_by_field(broken, names):
    with pytest.raises(BadMessage, match=names):
        decode_master_message(broken.SerializeToString())
