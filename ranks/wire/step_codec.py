"""Plans and what becomes of them, between plain data and protobuf, for `codec` alone."""

from ranks.errors import BadMessage
from ranks.plan import (
    Chunk,
    ChunkImage,
    Draw,
    LaneDraft,
    LaneFault,
    LaneGrow,
    LaneJoin,
    RefusalKind,
    StagedSlice,
    StepPlan,
    StepRefused,
    StepResult,
)
from ranks.wire import rank_pb2 as pb
from ranks.wire.checks import digest_of, distinct, known, positive, within

# A top_p below it would become 0 in the 32 bits of the wire, which is no top_p.
_LEAST_TOP_P = 2.0**-149

_FAULT_TO_PB = {LaneFault.NAN: pb.LANE_FAULT_NAN}
_PB_TO_FAULT: dict[int, LaneFault] = {int(pb.LANE_FAULT_NAN): LaneFault.NAN}
_KIND_TO_PB = {
    RefusalKind.MISMATCH: pb.REFUSAL_KIND_MISMATCH,
    RefusalKind.FAILED: pb.REFUSAL_KIND_FAILED,
    RefusalKind.SKIPPED: pb.REFUSAL_KIND_SKIPPED,
}
_PB_TO_KIND: dict[int, RefusalKind] = {int(number): kind for kind, number in _KIND_TO_PB.items()}


def plan_to_pb(plan: StepPlan) -> pb.StepPlan:
    """What the next step does, for the wire.

    Raises:
        ValueError: A draw cannot be said on the wire.
    """
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
        chunks=map(_chunk_to_pb, plan.chunks),
        decodes=plan.decodes,
        drafts=[
            pb.LaneDraft(lane_id=draft.lane_id, token_ids=draft.token_ids) for draft in plan.drafts
        ],
        digest=plan.digest,
        tells_parts=plan.tells_parts,
        staged=None if plan.staged is None else _slice_to_pb(plan.staged),
    )


def plan_from_pb(plan: pb.StepPlan) -> StepPlan:
    """What the next step does, from the wire.

    Raises:
        BadMessage: A field breaks its own rules.
    """
    return StepPlan(
        step_id=positive("plan.step_id", plan.step_id),
        epoch=positive("plan.epoch", plan.epoch),
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
        chunks=tuple(map(_chunk_from_pb, plan.chunks)),
        decodes=tuple(plan.decodes),
        drafts=tuple(
            LaneDraft(lane_id=draft.lane_id, token_ids=tuple(draft.token_ids))
            for draft in plan.drafts
        ),
        digest=digest_of("plan.digest", plan.digest),
        tells_parts=plan.tells_parts,
        staged=_slice_from_pb(plan.staged) if plan.HasField("staged") else None,
    )


def _chunk_to_pb(chunk: Chunk) -> pb.Chunk:
    return pb.Chunk(
        lane_id=chunk.lane_id,
        start=chunk.start,
        token_ids=chunk.token_ids,
        draws=chunk.draws,
        images=[
            pb.ChunkImage(image_id=image.image_id, start=image.start, num_tokens=image.num_tokens)
            for image in chunk.images
        ],
    )


def _chunk_from_pb(chunk: pb.Chunk) -> Chunk:
    return Chunk(
        lane_id=chunk.lane_id,
        start=chunk.start,
        token_ids=tuple(chunk.token_ids),
        draws=chunk.draws,
        images=tuple(
            ChunkImage(
                image_id=positive("chunk_image.image_id", image.image_id),
                start=image.start,
                num_tokens=positive("chunk_image.num_tokens", image.num_tokens),
            )
            for image in chunk.images
        ),
    )


def _slice_to_pb(staged: StagedSlice) -> pb.StagedSlice:
    return pb.StagedSlice(
        pass_id=staged.pass_id,
        chunks=map(_chunk_to_pb, staged.chunks),
        first_layer=staged.first_layer,
        stop_layer=staged.stop_layer,
    )


def _slice_from_pb(staged: pb.StagedSlice) -> StagedSlice:
    # How chunks and layers must fit is for the rank's lane table to say.
    return StagedSlice(
        pass_id=positive("staged.pass_id", staged.pass_id),
        chunks=tuple(map(_chunk_from_pb, staged.chunks)),
        first_layer=staged.first_layer,
        stop_layer=positive("staged.stop_layer", staged.stop_layer),
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
        temperature=within("draw.temperature", draw.temperature, 0.0, float("inf")),
        top_p=within("draw.top_p", draw.top_p, _LEAST_TOP_P, 1.0),
        top_k=draw.top_k or None,
        min_p=within("draw.min_p", draw.min_p, 0.0, 1.0),
        seed=draw.seed,
    )


def result_to_pb(result: StepResult) -> pb.StepResult:
    """What a step gave, for the wire."""
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
        parts=result.parts,
    )


def result_from_pb(result: pb.StepResult) -> StepResult:
    """What a step gave, from the wire.

    Raises:
        BadMessage: A field breaks its own rules.
    """
    drawn_ids = [drawn.lane_id for drawn in result.drawn]
    distinct("result lanes", drawn_ids + [failure.lane_id for failure in result.failures])
    distinct("result.accepted lanes", [accepted.lane_id for accepted in result.accepted])
    return StepResult(
        step_id=positive("result.step_id", result.step_id),
        epoch=positive("result.epoch", result.epoch),
        drawn={drawn.lane_id: drawn.token_id for drawn in result.drawn},
        failures={
            failure.lane_id: known("failure.fault", failure.fault, _PB_TO_FAULT)
            for failure in result.failures
        },
        accepted={part.lane_id: tuple(part.token_ids) for part in result.accepted},
        digest=digest_of("result.digest", result.digest),
        compute_ns=result.compute_ns,
        parts=dict(result.parts),
    )


def refused_to_pb(refused: StepRefused) -> pb.StepRefused:
    """Why a step was not run, for the wire."""
    return pb.StepRefused(
        step_id=refused.step_id,
        epoch=refused.epoch,
        kind=_KIND_TO_PB[refused.kind],
        reason=refused.reason,
    )


def refused_from_pb(refused: pb.StepRefused) -> StepRefused:
    """Why a step was not run, from the wire.

    Raises:
        BadMessage: A field breaks its own rules.
    """
    return StepRefused(
        step_id=positive("refused.step_id", refused.step_id),
        epoch=positive("refused.epoch", refused.epoch),
        kind=known("refused.kind", refused.kind, _PB_TO_KIND),
        reason=refused.reason,
    )
