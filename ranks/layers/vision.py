"""Parts of a SigLIP tower, and of the projector that makes rows of text of what it saw.

Laws: what an image gives depends on the image alone, with the same bits for any number of
threads: products are packed, attention is tiled as that of text, and what is averaged is added
in one order.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from ranks.layers.attention import MAX_SCORES, attend
from ranks.layers.linear import Linear
from ranks.layers.mlp import Activation, activate
from ranks.layers.norm import RmsNorm
from ranks.tiles import POSITION_TILE, pad_count, row_multiple
from ranks.weights.model_config import VisionConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNorm:
    """(x - mean) / deviation · weight + bias over the last dimension; both [width]."""

    weight: torch.Tensor
    bias: torch.Tensor
    eps: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, width] → the same."""
        return functional.layer_norm(x, [x.shape[-1]], self.weight, self.bias, self.eps)


class PatchEmbedding:
    """From pixels to one row a patch.

    Args:
        config: The tower's facts.
        linear: Takes a patch, channel after channel, row after row.
        positions: [patches, width], what is added to each.
    """

    def __init__(self, config: VisionConfig, linear: Linear, positions: torch.Tensor) -> None:
        self._config = config
        self._linear = linear
        self._positions = positions
        like = positions.new_empty(0, dtype=torch.float32)
        self._mean, self._std = like.new_tensor(config.mean), like.new_tensor(config.std)

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """uint8 [height, width, 3] → [padded patches, width]; padding rows last."""
        side, size = self._config.patches_per_side, self._config.patch_size
        values = (pixels.float() * self._config.rescale - self._mean) / self._std
        # [patch rows, rows of a patch, patch columns, columns of a patch, channels]
        patches = values.view(side, size, side, size, -1).permute(0, 2, 4, 1, 3)
        rows = patches.reshape(side * side, -1).to(self._positions.dtype)
        num_padded = pad_count(len(rows), row_multiple(rows.device))
        padding = (0, 0, 0, num_padded - len(rows))
        embedded = self._linear(functional.pad(rows, padding))
        return embedded.add_(functional.pad(self._positions, padding))


class VisionAttention:
    """Each patch sees all patches.

    Args:
        config: The tower's facts.
        qkv: Queries, then keys, then values, merged.
        output: Takes the heads' results, head after head.
    """

    def __init__(self, config: VisionConfig, qkv: Linear, output: Linear) -> None:
        self._config = config
        self._qkv = qkv
        self._output = output

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[padded patches, width] → the same."""
        heads, dim = self._config.num_heads, self._config.head_dim
        num_patches = self._config.patches_per_side**2
        merged = self._qkv(x).view(len(x), 3, heads, dim)
        queries, keys, values = merged.permute(1, 2, 0, 3)
        num_positions = pad_count(num_patches, POSITION_TILE)
        keys, values = (
            functional.pad(part[:, :num_patches], (0, 0, 0, num_positions - num_patches))
            for part in (keys, values)
        )
        hidden = torch.arange(num_positions, device=x.device)[None, None] >= num_patches
        attended = [
            attend(part[:, None, :, None], hidden, keys, values, scale=dim**-0.5)
            for part in queries.split(max(1, MAX_SCORES // (heads * num_positions)), dim=1)
        ]
        joined = torch.cat(attended, dim=2)[:, 0, :, 0]
        return self._output(joined.transpose(0, 1).reshape(len(x), -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionLayer:
    """One layer of the tower."""

    attention_norm: LayerNorm
    attention: VisionAttention
    mlp_norm: LayerNorm
    up: Linear
    down: Linear

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[padded patches, width] → the same; writes into `x`."""
        x.add_(self.attention(self.attention_norm(x)))
        return x.add_(self.down(activate(self.up(self.mlp_norm(x)), Activation.GELU_TANH)))


class Projector:
    """From patches to rows of the text model: averages of squares, normed and projected.

    Args:
        config: The tower's facts.
        norm: Of what was averaged.
        linear: To the width of the text model.
    """

    def __init__(self, config: VisionConfig, norm: RmsNorm, linear: Linear) -> None:
        self._config = config
        self._norm = norm
        self._linear = linear

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[padded patches, width] → [tokens, hidden]."""
        tokens, side = self._config.tokens_per_side, self._config.patches_per_side
        size = side // tokens
        squares = x[: side * side].view(tokens, size, tokens, size, -1)
        total = squares.new_zeros(tokens, tokens, x.shape[1], dtype=torch.float32)
        for row in range(size):
            for column in range(size):
                total.add_(squares[:, row, :, column])
        pooled = total.div_(size * size).flatten(0, 1).to(x.dtype)
        num_rows = len(pooled)
        padding = (0, 0, 0, pad_count(num_rows, row_multiple(x.device)) - num_rows)
        return self._linear(functional.pad(self._norm(pooled), padding))[:num_rows]
