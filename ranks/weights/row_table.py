"""A table whose rows are looked up by token id, held in the type of its file.

Laws: a row that is looked up has the bits that reading it would give. A table of groups
of four or eight bits is not held as float32 for the few rows that a step wants.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch.nn import functional


class RowTable(Protocol):
    """Rows of one matrix."""

    @property
    def num_bytes(self) -> int:
        """Bytes that the table holds."""
        ...

    @property
    def q8_0(self) -> torch.Tensor | None:
        """Its rows as uint8 [rows, bytes of a row], if they are Q8_0 (gguf's word)."""
        ...

    def look_up(self, token_ids: torch.Tensor) -> torch.Tensor:
        """int64 [n] → [n, width], in the type to compute with."""
        ...


class TensorRows:
    """Rows of a tensor, cast after they were looked up."""

    q8_0 = None

    def __init__(self, weight: torch.Tensor, dtype: torch.dtype) -> None:
        """Take [rows, width]."""
        self._weight = weight
        self._dtype = dtype

    @property
    def num_bytes(self) -> int:
        """Bytes that the table holds."""
        return self._weight.nbytes

    def look_up(self, token_ids: torch.Tensor) -> torch.Tensor:
        """int64 [n] → [n, width]."""
        return functional.embedding(token_ids, self._weight).to(self._dtype)


class StoredRows:
    """Rows in the bytes of a file, which only its reader knows to turn into numbers.

    Args:
        raw: uint8 [rows, bytes of a row], on the CPU.
        to_values: Turns uint8 [n, bytes of a row] into [n, width].
        dtype: The type to compute with.
        is_q8_0: Whether these bytes are Q8_0.
    """

    def __init__(
        self,
        raw: torch.Tensor,
        to_values: Callable[[torch.Tensor], torch.Tensor],
        dtype: torch.dtype,
        *,
        is_q8_0: bool,
    ) -> None:
        self.q8_0 = raw if is_q8_0 else None
        self._raw = raw
        self._to_values = to_values
        self._dtype = dtype

    @property
    def num_bytes(self) -> int:
        """Bytes that the table holds."""
        return self._raw.nbytes

    def look_up(self, token_ids: torch.Tensor) -> torch.Tensor:
        """int64 [n] → [n, width]."""
        return self._to_values(self._raw.index_select(0, token_ids)).to(self._dtype)
