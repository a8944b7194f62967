"""Runs the slices of the staged pass, and holds between them what the next one goes on from.

Laws: what it holds is the pass that the lane table has open, and nothing without one; a slice
runs in products of its own, so its bits do not depend on what else its step has. Rows of images
are read by the first slice only: whoever drops them behind it harms no pass.
"""

from collections.abc import Callable, Sequence

import torch

from ranks.errors import StepMismatch
from ranks.kv_store import KvStore
from ranks.lane_table import CheckedStep, Rows
from ranks.models.passes import PassState
from ranks.models.registry import CausalLM
from ranks.shards import Collective
from ranks.step_inputs import LaneImage, LaneRows

# The rows of an image, [tokens, hidden], by its number; None where this rank has none.
ImageRows = Callable[[int], torch.Tensor | None]


def no_images(image_id: int) -> None:
    """Say of any image that its rows are not here."""
    del image_id


class PassRunner:
    """Of one epoch; runs one slice at a time."""

    def __init__(self, model: CausalLM, kv: KvStore, image_rows: ImageRows) -> None:
        """Begin without a pass."""
        self._model = model
        self._kv = kv
        self._image_rows = image_rows
        self._state: PassState | None = None

    @property
    def is_open(self) -> bool:
        """Whether a pass waits for its next slice."""
        return self._state is not None

    def check(self, step: CheckedStep) -> None:
        """Check that the images of a slice that opens a pass are here.

        Raises:
            StepMismatch: One is not, or it has another number of rows.
        """
        if step.plan.staged is None or step.plan.staged.first_layer > 0:
            return
        for rows in step.staged_rows:
            for image in rows.images:
                found = self._image_rows(image.image_id)
                if found is None:
                    raise StepMismatch(f"image {image.image_id} is not here")
                if found.shape[0] != image.num_tokens:
                    raise StepMismatch(
                        f"image {image.image_id} has {image.num_tokens} rows in the plan, "
                        f"{found.shape[0]} here"
                    )

    def run(self, step: CheckedStep, collective: Collective) -> torch.Tensor | None:
        """Run the slice of a step; the pass is here until `commit` or `drop`.

        Returns:
            Behind the last slice, on the leader, float32 logits [draws, vocab]; else None.
        """
        staged = step.plan.staged
        assert staged is not None
        if staged.first_layer == 0:
            self._state = self._begin(step)
        assert self._state is not None, "a slice of a pass that is not here"
        self._model.run_layers(
            self._state, staged.first_layer, staged.stop_layer, self._kv, collective
        )
        return self._model.finish(self._state, collective) if step.ends_pass else None

    def commit(self, step: CheckedStep) -> None:
        """Take note that a step has run: a pass that has ended is let go."""
        if step.ends_pass:
            self._state = None

    def drop(self, step: CheckedStep) -> None:
        """Take note that a step failed: a pass of which it had a slice is let go."""
        if step.plan.staged is not None:
            self._state = None

    def _begin(self, step: CheckedStep) -> PassState:
        lanes = [self._lane_rows(rows) for rows in step.staged_rows]
        return self._model.begin(lanes, self._kv)

    def _lane_rows(self, rows: Rows) -> LaneRows:
        images = [
            LaneImage(start=image.start, rows=self._found(image.image_id)) for image in rows.images
        ]
        return lane_rows(rows, images)

    def _found(self, image_id: int) -> torch.Tensor:
        found = self._image_rows(image_id)
        assert found is not None, "images are dropped between steps only"
        return found


def lane_rows(rows: Rows, images: Sequence[LaneImage] = ()) -> LaneRows:
    """Return the rows of a lane as the model takes them."""
    return LaneRows(
        lane_id=rows.lane_id,
        start=rows.start,
        token_ids=rows.token_ids,
        block_table=rows.block_table,
        num_draws=rows.num_draws,
        images=tuple(images),
    )
