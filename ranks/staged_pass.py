"""The staged pass that is open on a rank, and which slice may come next; pure (ADR 26).

Laws: one pass is open at a time; its slices name the same chunks, and go on at the layer where
the last one stopped; ids of passes rise. What a slice does not fit is a `StepMismatch` that
names what and both values.
"""

from dataclasses import dataclass

from ranks.errors import StepMismatch
from ranks.plan import Chunk, StagedSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPass:
    """A pass of which some layers have run: the next slice begins at `next_layer`."""

    pass_id: int
    chunks: tuple[Chunk, ...]
    next_layer: int

    @property
    def lane_ids(self) -> frozenset[int]:
        """Lanes that run nothing else until it has ended."""
        return frozenset(chunk.lane_id for chunk in self.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassLimits:
    """What slices are checked against; `max_tokens` 0 for no passes at all."""

    num_layers: int
    max_tokens: int


def next_pass(
    begun: OpenPass | None, staged: StagedSlice, last_pass_id: int, limits: PassLimits
) -> OpenPass | None:
    """Return the pass as it is once a slice has run: None when it has ended.

    Args:
        begun: The pass that is open, None for none.
        staged: The slice.
        last_pass_id: The highest that any pass has had.
        limits: What it is checked against.

    Raises:
        StepMismatch: It does not come next, or is none.
    """
    first, stop = staged.first_layer, staged.stop_layer
    if not 0 <= first < stop <= limits.num_layers:
        raise StepMismatch(
            f"pass {staged.pass_id} has a slice of layers {first} to {stop}, "
            f"the model has {limits.num_layers}"
        )
    if first == 0:
        _check_opening(begun, staged, last_pass_id, limits)
    else:
        _check_going_on(begun, staged)
    if stop == limits.num_layers:
        return None
    return OpenPass(pass_id=staged.pass_id, chunks=staged.chunks, next_layer=stop)


def _check_opening(
    begun: OpenPass | None, staged: StagedSlice, last_pass_id: int, limits: PassLimits
) -> None:
    if begun is not None:
        raise StepMismatch(
            f"pass {staged.pass_id} is opened, pass {begun.pass_id} is open "
            f"at layer {begun.next_layer}"
        )
    if staged.pass_id <= last_pass_id:
        raise StepMismatch(f"pass {staged.pass_id} is opened, the last was {last_pass_id}")
    if not staged.chunks:
        raise StepMismatch(f"pass {staged.pass_id} has no chunks")
    if staged.num_tokens > limits.max_tokens:
        raise StepMismatch(
            f"pass {staged.pass_id} has {staged.num_tokens} tokens, limit {limits.max_tokens}"
        )
    for chunk in staged.chunks:
        _check_images(chunk)


def _check_images(chunk: Chunk) -> None:
    free, stop = chunk.start, chunk.start + len(chunk.token_ids)
    for image in chunk.images:
        if image.num_tokens < 1:
            raise StepMismatch(
                f"image {image.image_id} of lane {chunk.lane_id} has {image.num_tokens} rows"
            )
        if image.start < free or image.stop > stop:
            raise StepMismatch(
                f"image {image.image_id} of lane {chunk.lane_id} lies at positions {image.start} "
                f"to {image.stop}, free are {free} to {stop}"
            )
        free = image.stop


def _check_going_on(begun: OpenPass | None, staged: StagedSlice) -> None:
    if begun is None:
        raise StepMismatch(
            f"pass {staged.pass_id} goes on at layer {staged.first_layer}, no pass is open"
        )
    if staged.pass_id != begun.pass_id:
        raise StepMismatch(f"pass {staged.pass_id} goes on, pass {begun.pass_id} is open")
    if staged.first_layer != begun.next_layer:
        raise StepMismatch(
            f"pass {staged.pass_id} goes on at layer {staged.first_layer}, "
            f"it is at {begun.next_layer}"
        )
    if staged.chunks != begun.chunks:
        raise StepMismatch(
            f"pass {staged.pass_id} goes on with other chunks than it was opened with: "
            f"lanes {[chunk.lane_id for chunk in staged.chunks]}, "
            f"it has lanes {[chunk.lane_id for chunk in begun.chunks]}"
        )
