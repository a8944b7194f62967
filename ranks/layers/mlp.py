"""The gated feed-forward part of a layer."""

from enum import Enum

import torch
from torch.nn import functional

from ranks.layers.linear import Linear, RowParallelLinear
from ranks.shards import Collective

_SAFE_THREADS = 2


class Activation(Enum):
    """What an MLP does to each value between its products."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"


# torch splits an element-wise pass over threads above so many elements.
_ONE_THREAD_ELEMENTS = {Activation.SILU: 32_768, Activation.GELU_TANH: 16_384}


class GatedMlp:
    """down(activate(gate x) · up x); all three hold the columns of this rank's shards."""

    def __init__(
        self,
        gate: Linear,
        up: Linear,
        down: RowParallelLinear,
        activation: Activation = Activation.SILU,
    ) -> None:
        self._gate = gate
        self._up = up
        self._down = down
        self._activation = activation

    def __call__(self, x: torch.Tensor, collective: Collective) -> torch.Tensor:
        """[rows, hidden] → [rows, hidden], the same on every rank."""
        gate = activate(self._gate(x), self._activation)
        return self._down(gate.mul_(self._up(x)), collective)


def activate(values: torch.Tensor, activation: Activation) -> torch.Tensor:
    """Activate [rows, width], in place, with the same bits wherever a row lies.

    torch computes what is left over at the end of a thread's share with another
    exponential than the rest. The width is a multiple of 16 and the rows of 4, so one
    or two threads have nothing left over; with more of them the shares may be odd, and
    a pass is kept within one thread's share. It is cut by elements: an odd number of rows
    would leave 16 of them over where the width is an odd multiple of 16.
    """
    at_once = _ONE_THREAD_ELEMENTS[activation]
    if values.numel() <= at_once or torch.get_num_threads() <= _SAFE_THREADS:
        _activate(values, activation)
        return values
    for part in values.view(-1).split(at_once):
        _activate(part, activation)
    return values


def _activate(values: torch.Tensor, activation: Activation) -> None:
    match activation:
        case Activation.SILU:
            functional.silu(values, inplace=True)
        case Activation.GELU_TANH:
            torch.ops.aten.gelu_(values, approximate="tanh")
