"""Steps on the wire: what breaks a field's own rules is refused, with the field's name."""

import pytest

from ranks.errors import BadMessage
from ranks.plan import Draw, LaneJoin, StepPlan
from ranks.wire import rank_pb2 as pb
from ranks.wire.codec import (
    decode_master_message,
    decode_rank_message,
    encode_master_message,
)

D = bytes(16)


@pytest.mark.parametrize(
    ("draw", "names"),
    [
        (pb.Draw(temperature=float("nan"), top_p=1), "temperature is nan"),
        (pb.Draw(temperature=float("inf"), top_p=1), "temperature is inf"),
        (pb.Draw(temperature=-1, top_p=1), "temperature is -1"),
        (pb.Draw(top_p=0), "top_p is 0"),
        (pb.Draw(top_p=1.5), "top_p is 1.5"),
        (pb.Draw(top_p=1, min_p=2), "min_p is 2"),
    ],
)
def test_a_draw_out_of_bounds_is_refused_by_field(draw, names):
    plan = pb.StepPlan(step_id=1, epoch=1, digest=D, joins=[pb.LaneJoin(lane_id=0, draw=draw)])
    with pytest.raises(BadMessage, match=names):
        decode_master_message(pb.ConnectResponse(plan=plan).SerializeToString())


@pytest.mark.parametrize(
    ("result", "names"),
    [
        (pb.StepResult(step_id=1, epoch=1), "result.digest has 0 bytes"),
        (
            pb.StepResult(
                step_id=1,
                epoch=1,
                digest=D,
                drawn=[pb.Drawn(lane_id=4), pb.Drawn(lane_id=4)],
            ),
            "lane 4 is there twice",
        ),
        (
            pb.StepResult(
                step_id=1,
                epoch=1,
                digest=D,
                drawn=[pb.Drawn(lane_id=4)],
                failures=[pb.LaneFailure(lane_id=4, fault=pb.LANE_FAULT_NAN)],
            ),
            "lane 4 is there twice",
        ),
        (
            pb.StepResult(step_id=1, epoch=1, digest=D, failures=[pb.LaneFailure(lane_id=4)]),
            "fault is 0",
        ),
    ],
)
def test_a_broken_result_is_refused_by_field(result, names):
    with pytest.raises(BadMessage, match=names):
        decode_rank_message(pb.ConnectRequest(result=result).SerializeToString())


@pytest.mark.parametrize("kind", [0, 4])
def test_a_refusal_of_no_kind_or_an_unknown_one_is_refused_by_field(kind):
    request = pb.ConnectRequest(refused=pb.StepRefused(step_id=1, epoch=1, kind=kind))
    with pytest.raises(BadMessage, match=rf"refused.kind is {kind}, known are \[1, 2, 3\]"):
        decode_rank_message(request.SerializeToString())


def test_the_smallest_top_p_keeps_being_one_on_the_wire():
    join = LaneJoin(lane_id=0, draw=Draw(temperature=1.0, top_p=1e-300))
    plan = StepPlan(step_id=1, epoch=1, joins=(join,), digest=D)
    arrived = decode_master_message(encode_master_message(plan))
    assert 0 < arrived.joins[0].draw.top_p < 1e-40


def test_a_top_k_of_zero_is_not_taken_for_all():
    join = LaneJoin(lane_id=0, draw=Draw(top_k=0))
    with pytest.raises(ValueError, match="top_k is 0"):
        encode_master_message(StepPlan(step_id=1, epoch=1, joins=(join,), digest=D))


@pytest.mark.parametrize(
    ("staged", "names"),
    [
        (pb.StagedSlice(stop_layer=1), "staged.pass_id is 0"),
        (pb.StagedSlice(pass_id=1), "staged.stop_layer is 0"),
        (
            pb.StagedSlice(
                pass_id=1,
                stop_layer=1,
                chunks=[pb.Chunk(images=[pb.ChunkImage(num_tokens=1)])],
            ),
            "chunk_image.image_id is 0",
        ),
        (
            pb.StagedSlice(
                pass_id=1,
                stop_layer=1,
                chunks=[pb.Chunk(images=[pb.ChunkImage(image_id=1)])],
            ),
            "chunk_image.num_tokens is 0",
        ),
    ],
)
def test_a_broken_slice_is_refused_by_field(staged, names):
    plan = pb.StepPlan(step_id=1, epoch=1, digest=D, staged=staged)
    with pytest.raises(BadMessage, match=names):
        decode_master_message(pb.ConnectResponse(plan=plan).SerializeToString())
