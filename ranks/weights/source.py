"""What a checkpoint's files offer to the loader: tensors by one naming, part by part.

Names are those of a Hugging Face llama checkpoint without the leading `model.`, for
example `layers.0.self_attn.q_proj.weight`; a GGUF's names are translated.
"""

from typing import Protocol

import torch


class WeightSource(Protocol):
    """Tensors of one checkpoint, read in part."""

    def names(self) -> set[str]:
        """All tensors."""
        ...

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The whole tensor's shape, None when there is no such tensor."""
        ...

    def num_bytes(self, name: str) -> int:
        """Bytes that the whole tensor takes in the file."""
        ...

    def read(self, name: str, *, rows: range, columns: range | None) -> torch.Tensor:
        """Read rows, and of those some columns, of a vector or matrix.

        Returns a tensor of the file's type, or float32 where the file has groups.
        """
        ...
