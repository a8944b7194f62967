"""From the rows of a step to the tensors that a forward pass takes.

Laws: what is built depends on the rows alone. The number of rows is padded to a
multiple at which the CPU's products give each row the same bits whatever else is
in the step (ADR 2); the padding never reaches the KV store or the logits.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRows:
    """The rows of one lane in one step.

    `token_ids` go to positions `start`, `start` + 1 and so on; `block_table` covers
    at least all of them. When `draws`, the last row's logits are wanted.
    """

    lane_id: int
    start: int
    token_ids: torch.Tensor | list[int]
    block_table: list[int]
    draws: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInputs:
    """The tensors of one step; rows lie lane after lane, padding rows last."""

    token_ids: torch.Tensor  # int64 [padded rows]
    num_rows: int


def build_inputs(
    rows: list[LaneRows], *, device: torch.device, block_size: int
) -> StepInputs:
    """Lay out the rows of a step; logits come in the order of the lanes that draw.

    Raises:
        ValueError: A block table is too short for its lane's rows, or a lane has no rows.
    """
    raise NotImplementedError
