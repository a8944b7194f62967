"""Root mean square norm, computed in float32."""

import torch
from torch.nn import functional


class RmsNorm:
    """x / rms(x) · weight over the last dimension.

    A weight of float32 is multiplied in float32, one of another type after the cast.

    Args:
        weight: [width].
        eps: Added to the mean square.
    """

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self._weight = weight
        self._eps = eps
        self._shape = [weight.shape[0]]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[..., width] → the same shape and type."""
        if self._weight.dtype == torch.float32:
            return functional.rms_norm(x.float(), self._shape, self._weight, self._eps).to(x.dtype)
        normed = functional.rms_norm(x.float(), self._shape, None, self._eps)
        return normed.to(x.dtype) * self._weight
