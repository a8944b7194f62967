"""From token ids to vectors, and from vectors to logits."""

import torch
from torch.nn import functional

from ranks.layers.linear import Linear
from ranks.shards import Collective
from ranks.tiles import pad_count, row_multiple
from ranks.weights.row_table import RowTable


class Embedding:
    """The table of all tokens, whole on every rank.

    Args:
        table: [vocab, hidden].
        scale: Multiplies each row, rounded to the type of the rows first; None multiplies none.
    """

    def __init__(self, table: RowTable, scale: float | None = None) -> None:
        self._table = table
        self._scale = scale

    def __call__(self, token_ids: torch.Tensor) -> torch.Tensor:
        """int64 [rows] → [rows, hidden], the caller's to write to."""
        rows = self._table.look_up(token_ids)
        if self._scale is None:
            return rows
        return rows.mul_(torch.tensor(self._scale).to(dtype=rows.dtype, device=rows.device))


class Head:
    """The logits of this rank's part of the vocabulary, joined on the leader.

    Args:
        weight: [vocab of the held shards, hidden].
    """

    def __init__(self, weight: torch.Tensor) -> None:
        self._linear = Linear(weight)

    def __call__(self, x: torch.Tensor, collective: Collective) -> torch.Tensor | None:
        """[rows, hidden] → float32 [rows, vocab] on the leader, None elsewhere."""
        num_rows = x.shape[0]
        x = functional.pad(x, (0, 0, 0, pad_count(num_rows, row_multiple(x.device)) - num_rows))
        logits = collective.gather_columns(self._linear(x)[:num_rows])
        return None if logits is None else logits.float()
