"""The gated feed-forward part of a layer."""

import torch
from torch.nn import functional

from ranks.layers.linear import Linear, RowParallelLinear
from ranks.shards import Collective

# torch splits an element-wise pass over threads above this many elements.
_ONE_THREAD_ELEMENTS = 32_768
_SAFE_THREADS = 2


class GatedMlp:
    """down(silu(gate x) · up x); all three hold the columns of this rank's shards."""

    def __init__(self, gate: Linear, up: Linear, down: RowParallelLinear) -> None:
        self._gate = gate
        self._up = up
        self._down = down

    def __call__(self, x: torch.Tensor, collective: Collective) -> torch.Tensor:
        """[rows, hidden] → [rows, hidden], the same on every rank."""
        return self._down(_silu(self._gate(x)).mul_(self._up(x)), collective)


def _silu(gate: torch.Tensor) -> torch.Tensor:
    """Silu of [rows, width], in place, with the same bits wherever a row lies.

    torch computes what is left over at the end of a thread's share with another
    exponential than the rest. The width is a multiple of 16 and the rows of 4, so one
    or two threads have nothing left over; with more of them the shares may be odd, and
    a pass is kept within one thread's share.
    """
    if gate.numel() <= _ONE_THREAD_ELEMENTS or torch.get_num_threads() <= _SAFE_THREADS:
        return functional.silu(gate, inplace=True)
    for part in gate.split(max(1, _ONE_THREAD_ELEMENTS // gate.shape[1])):
        functional.silu(part, inplace=True)
    return gate
