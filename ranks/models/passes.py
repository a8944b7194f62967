"""A pass through the layers that can be cut into slices of layers.

Laws: a pass that is run in slices gives the bits of one that is run whole; a slice that
fails leaves the pass where it was, for what a slice makes is put beside what it came from.
Keys and values that a failed slice has written are those that the next try writes again.
"""

from dataclasses import dataclass

import torch

from ranks.layers.rotary import Rotation
from ranks.step_inputs import StepInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """What a family takes as an image: its size in pixels, and what becomes of it.

    `num_tokens` rows stand for an image, each as the token `token_id`.
    """

    num_tokens: int
    token_id: int
    width: int
    height: int


@dataclass(slots=True, kw_only=True)
class PassState:
    """What a pass holds between its slices; `x` is [padded rows, hidden]."""

    inputs: StepInputs
    rotations: tuple[Rotation, ...]
    hidden: dict[int | None, list[torch.Tensor]]
    x: torch.Tensor
    num_layers_run: int = 0

    def check_slice(self, first: int, stop: int, *, num_layers: int) -> None:
        """Check that a slice of layers comes next.

        Raises:
            ValueError: It does not.
        """
        if first != self.num_layers_run or not first < stop <= num_layers:
            raise ValueError(
                f"layers {first} to {stop} of {num_layers} asked for, "
                f"the pass has run {self.num_layers_run}"
            )

    def advance(self, x: torch.Tensor, stop: int) -> None:
        """Take what a slice that ended before layer `stop` has made."""
        self.x = x
        self.num_layers_run = stop

    def check_finished(self, num_layers: int) -> None:
        """Check that all layers were run.

        Raises:
            ValueError: They were not.
        """
        if self.num_layers_run != num_layers:
            raise ValueError(f"the pass has run {self.num_layers_run} of {num_layers} layers")


def place_images(x: torch.Tensor, inputs: StepInputs) -> torch.Tensor:
    """Put the rows of images in their places of [padded rows, hidden], and return it."""
    for first, rows in inputs.images:
        x[first : first + rows.shape[0]] = rows
    return x
