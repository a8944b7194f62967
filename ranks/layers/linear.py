"""Products with weights: the packed product, and its row-parallel form.

Laws: the bits of a row do not depend on the other rows (ADR 2, `ranks.tiles`).
A row-parallel product is computed per virtual shard and the shards' results are added
in shard order; of two ranks each adds its own, and a sum of two does not know an order.
"""

import torch
from torch.nn import functional

from ranks.shards import Collective
from ranks.tiles import can_pack, row_multiple

# oneDNN chooses its layout for a number of rows; this one was the fastest at 1 to 512 rows.
_LAYOUT_ROWS = 64
# The self-check: a product of this size, some rows alone and among many. It takes
# milliseconds.
_CHECK_INPUTS, _CHECK_OUTPUTS, _CHECK_ROWS = 576, 960, 512


class Linear:
    """y = x W^T + b, with the weight packed where the device can.

    Args:
        weight: [out, in]; may be given away, no view of it is kept when it is packed.
        bias: [out] or None.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._bias = bias
        self._is_packed = can_pack(weight.device, weight.dtype)
        self._weight = (
            torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _LAYOUT_ROWS)  # noqa: SLF001 (no public name)
            if self._is_packed
            else weight.contiguous()
        )

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, in] → [rows, out]."""
        if not self._is_packed:
            return functional.linear(x, self._weight, self._bias)
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001 (no public name)
            x, self._weight, self._bias, "none", [], ""
        )
        return product


class RowParallelLinear:
    """A product whose inputs are cut over virtual shards; the sum is over all ranks.

    Args:
        shard_weights: [out, in of the shard] for each held shard, in shard order.
        bias: [out] or None, added once, after the sum.
    """

    def __init__(self, shard_weights: list[torch.Tensor], bias: torch.Tensor | None) -> None:
        self._widths = [weight.shape[1] for weight in shard_weights]
        self._shards = [Linear(weight) for weight in shard_weights]
        self._bias = bias

    def __call__(self, x: torch.Tensor, collective: Collective) -> torch.Tensor:
        """[rows, in of all held shards] → [rows, out], the same on every rank."""
        parts = x.split(self._widths, dim=1) if len(self._widths) > 1 else (x,)
        total = self._shards[0](parts[0])
        for shard, part in zip(self._shards[1:], parts[1:], strict=True):
            total.add_(shard(part))
        total = collective.all_reduce(total)
        return total if self._bias is None else total.add_(self._bias)


def are_rows_exact(device: torch.device, dtype: torch.dtype) -> bool:
    """Try whether a row has the same bits in the smallest step and in a large one (ADR 2).

    It tries the library on this machine and with this number of threads; that it holds
    for one size does not prove that it holds for all.
    """

    def values(num_rows: int, width: int, step: float) -> torch.Tensor:
        angles = torch.arange(num_rows * width, dtype=torch.float64).mul_(step)
        return angles.sin_().view(num_rows, width).to(device=device, dtype=dtype)

    with torch.inference_mode():
        linear = Linear(values(_CHECK_OUTPUTS, _CHECK_INPUTS, 0.7))
        x = values(_CHECK_ROWS, _CHECK_INPUTS, 1.3)
        num_rows = row_multiple(device)
        return torch.equal(linear(x[:num_rows]), linear(x)[:num_rows])
