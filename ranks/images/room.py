"""What images take on a rank beside weights and steps, so that the KV pool leaves room for it.

Laws: an estimate is never below what a pass holds between two slices, nor below the rows of the
images that are kept (a test compares them); a model that takes no images needs nothing. What is
counted here is all that images ever hold: no request makes a rank hold more.
"""

from dataclasses import dataclass

from ranks.models.registry import CausalLM
from ranks.models.step_memory import StepLimits
from ranks.tiles import pad_count, row_multiple

_FLOAT32, _INT64 = 4, 8
# The rows as they wait, and as the next slice makes them; those of images until they are in place.
_STREAM_COPIES = 3
# Of a row: its token, its position, where it is written; in its group which it is, where, and how
# far it sees.
_NUMBERS = 6
# Cosines and sines, for two kinds of layers.
_ROTATIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRoom:
    """Bytes for a staged pass, and for the rows of images that are kept."""

    max_staged_tokens: int = 0
    staged_bytes: int = 0
    kept_bytes: int = 0

    @property
    def num_bytes(self) -> int:
        """Both."""
        return self.staged_bytes + self.kept_bytes

    def widest(self, max_step_tokens: int, num_lanes: int) -> StepLimits:
        """Return the limits of what one forward pass computes: of the rows, or of a slice."""
        return StepLimits(
            max_step_tokens=max(max_step_tokens, self.max_staged_tokens), num_lanes=num_lanes
        )

    def longest(self, max_step_tokens: int, num_lanes: int) -> StepLimits:
        """Return the limits of what is held for each position: by the rows, and by the pass."""
        return StepLimits(
            max_step_tokens=max_step_tokens + self.max_staged_tokens, num_lanes=num_lanes
        )


def image_room(model: CausalLM, *, max_staged_tokens: int, image_cache_tokens: int) -> ImageRoom:
    """Return what images take on this rank.

    Args:
        model: This rank's part.
        max_staged_tokens: The most rows of a pass.
        image_cache_tokens: The most rows of images that are kept.
    """
    facts = model.images
    if facts is None:
        return ImageRoom()
    value, config = model.dtype.itemsize, model.config
    stream = config.hidden_size * value
    rotations = _ROTATIONS * config.head_dim * _FLOAT32
    rows = pad_count(max_staged_tokens, row_multiple(model.device))
    return ImageRoom(
        max_staged_tokens=max_staged_tokens,
        staged_bytes=rows * (_STREAM_COPIES * stream + _NUMBERS * _INT64 + rotations),
        # One more is being encoded while the master drops what is over.
        kept_bytes=(image_cache_tokens + facts.num_tokens) * stream,
    )
