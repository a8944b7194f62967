"""Rotary positions: halves of each head are rotated against each other.

Laws: angles are float32 products, as in the reference; their sine and cosine are
computed in float64 and rounded, so that they are the nearest float32 whatever library
computes them: the same bits on every rank and machine.
"""

import math
from dataclasses import dataclass

import torch

from ranks.weights.model_config import FactorRope, LinearRope, Llama3Rope, Rope


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """Cosine, and sine with the sign of the half it meets; each [rows, 1, head_dim]."""

    cos: torch.Tensor
    signed_sin: torch.Tensor


class Rotary:
    """Makes the rotation of a step from its positions."""

    def __init__(
        self, rope: Rope, *, head_dim: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._frequencies = _frequencies(rope, head_dim).to(device)
        self._dtype = dtype

    def at(self, positions: torch.Tensor) -> Rotation:
        """The rotation of the rows at `positions`, int64 [rows]."""
        angles = (positions.float()[:, None] * self._frequencies).double()
        cos, sin = angles.cos().to(self._dtype), angles.sin().to(self._dtype)
        return Rotation(
            cos=torch.cat((cos, cos), dim=-1).unsqueeze(1),
            signed_sin=torch.cat((-sin, sin), dim=-1).unsqueeze(1),
        )


def rotate(heads: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Rotate [rows, heads, head_dim]."""
    first, second = heads.chunk(2, dim=-1)
    swapped = torch.cat((second, first), dim=-1)
    return (heads * rotation.cos).add_(swapped.mul_(rotation.signed_sin))


def _frequencies(rope: Rope, head_dim: int) -> torch.Tensor:
    """float32 [head_dim / 2]."""
    steps = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies: torch.Tensor = 1.0 / (rope.theta**steps)
    match rope.scaling:
        case None:
            return frequencies
        case LinearRope(factor=factor):
            return frequencies / factor
        case FactorRope(factors=factors):
            return frequencies / torch.tensor(factors, dtype=torch.float32)
        case Llama3Rope() as scaling:
            return _scale_llama3(frequencies, scaling)


def _scale_llama3(frequencies: torch.Tensor, scaling: Llama3Rope) -> torch.Tensor:
    context = scaling.original_context_length
    lengths = 2 * math.pi / frequencies
    smooth = (context / lengths - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    blended = (1 - smooth) * frequencies / scaling.factor + smooth * frequencies
    is_low = lengths > context / scaling.low_freq_factor
    is_high = lengths < context / scaling.high_freq_factor
    scaled = torch.where(is_low, frequencies / scaling.factor, frequencies)
    return torch.where(is_low | is_high, scaled, blended)
