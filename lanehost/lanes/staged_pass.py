"""Choose the rows of a staged pass, and how many layers of it the next step runs; pure.

A pass is shared by all that have come to an image and have it ready, first come, first served;
those in the background come last. Text between images goes with them. Beside streams, or prompts
of text, a pass has few rows and goes a few layers at a time; alone it takes what there is, whole
(ADR 30).

Laws: an image is in a pass whole or not at all, and only once it is ready; a pass has no more
rows than the ranks have room for; nobody behind one who does not fit goes first, but where that
one waits for its image.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lanehost.lanes.lane import Lane
from lanehost.lanes.staged_chunk import staged_prefill_chunk
from lanehost.lanes.staging import Staging
from lanehost.lanes.stall_budget import StallBudget
from ranks.plan import Chunk, ChunkImage, StagedSlice

# The least rows of a chunk: no family that is built asks for more.
_MINIMUM = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFrame:
    """What staged passes keep to.

    Attributes:
        ready: The images that are ready, by digest: the numbers that plans name them by.
        max_rows: Rows that a pass may have.
        shared_rows: Those of a pass that begins beside streams or prompts of text.
        stall: How long a slice may keep streams waiting.
    """

    ready: Mapping[bytes, int]
    max_rows: int
    shared_rows: int
    stall: StallBudget


def next_slice(
    staging: Staging, lanes: Iterable[Lane], frame: StagedFrame, *, max_prompts: int
) -> StagedSlice | None:
    """Return what the next step runs of a pass: of the open one, else of a new one, if any.

    Args:
        staging: The open pass.
        lanes: Those that may share the step.
        frame: What it keeps to.
        max_prompts: How many lanes may share a pass.
    """
    sharing = list(lanes)
    has_others = any(lane.wants_decode or lane.wants_prefill for lane in sharing)
    if staging.open is not None:
        chunks = staging.open.chunks
    else:
        rows = frame.stall.num_rows(frame.shared_rows) if has_others else frame.max_rows
        chunks = _fill_pass(sharing, frame, budget=rows, max_prompts=max_prompts)
    if not chunks:
        return None
    num_rows = sum(len(chunk.token_ids) for chunk in chunks)
    num_layers = frame.stall.num_layers(num_rows) if has_others else staging.num_layers
    return staging.next_slice(chunks, num_layers)


def whole_pass(staging: Staging, lane: Lane, frame: StagedFrame) -> StagedSlice | None:
    """Return a pass of one lane alone, in one slice; None if it is not ready or one is open."""
    if staging.open is not None:
        return None
    chunks = _fill_pass([lane], frame, budget=frame.shared_rows, max_prompts=1)
    return staging.next_slice(chunks, staging.num_layers) if chunks else None


def _fill_pass(
    lanes: Iterable[Lane], frame: StagedFrame, *, budget: int, max_prompts: int
) -> tuple[Chunk, ...]:
    staged = [lane for lane in lanes if lane.wants_staging]
    staged.sort(key=lambda lane: (lane.fills_last, lane.seat_number))
    chunks: list[Chunk] = []
    left = budget
    for lane in staged:
        if left < 1 or len(chunks) == max_prompts:
            break
        if lane.images_left[0].image.digest not in frame.ready:
            continue
        chunk = _staged_chunk(lane, frame.ready, left)
        # The first may be longer than the budget: an image has to be whole.
        if chunks and len(chunk.token_ids) > left:
            break
        chunks.append(chunk)
        left -= len(chunk.token_ids)
    return tuple(chunks)


def _staged_chunk(lane: Lane, ready: Mapping[bytes, int], budget: int) -> Chunk:
    """Return the rows of a lane for a pass, all before an image that is not ready."""
    start, images = lane.num_planned_tokens, lane.images_left
    unready = (one.start for one in images if one.image.digest not in ready)
    end = next(unready, len(lane.prefill_ids))
    spans = [(one.start, one.stop) for one in images]
    stop = start + staged_prefill_chunk(spans, start, end - start, budget, _MINIMUM)
    return Chunk(
        lane_id=lane.lane_id,
        start=start,
        token_ids=lane.prefill_ids[start:stop],
        draws=stop == len(lane.prefill_ids) and not lane.is_warm,
        images=tuple(
            ChunkImage(image_id=ready[one.image.digest], start=one.start, num_tokens=one.num_tokens)
            for one in images
            if one.stop <= stop
        ),
    )
