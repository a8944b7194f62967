"""The eyes of Gemma 3: a SigLIP tower and a projector, whole on every rank (ADR 28).

    pixels ── patches ── layers ── norm ── averages of squares ── norm ── projection ── rows

It knows nothing of a step: it may run beside one, on another thread.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from ranks.layers.attention import MAX_SCORES
from ranks.layers.linear import Linear
from ranks.layers.norm import RmsNorm
from ranks.layers.vision import (
    LayerNorm,
    PatchEmbedding,
    Projector,
    VisionAttention,
    VisionLayer,
)
from ranks.models.passes import ImageFacts
from ranks.tiles import pad_count
from ranks.weights.model_config import VisionConfig
from ranks.weights.reader import TensorReader

_CHANNELS, _COLUMN_MULTIPLE = 3, 16
_FLOAT32 = 4
# Rows of these widths are alive at once: the stream, its norm, queries to values, what was
# attended and its copies; what is between the MLP's products.
_WIDTH_COPIES, _MLP_COPIES = 10, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SiglipEncoder:
    """Makes the rows of an image; implements `ImageEncoder`."""

    config: VisionConfig
    patches: PatchEmbedding
    layers: tuple[VisionLayer, ...]
    norm: LayerNorm
    projector: Projector
    device: torch.device

    @property
    def facts(self) -> ImageFacts:
        """What it takes, and what becomes of it."""
        return ImageFacts(
            num_tokens=self.config.tokens_per_side**2,
            token_id=self.config.image_token_id,
            width=self.config.image_size,
            height=self.config.image_size,
        )

    def num_step_bytes(self, itemsize: int) -> int:
        """Bytes that an image takes while it is encoded, with values of `itemsize` bytes."""
        config = self.config
        num_patches = config.patches_per_side**2
        widths = _WIDTH_COPIES * config.hidden_size + _MLP_COPIES * config.intermediate_size
        pixels = config.image_size**2 * _CHANNELS * (3 * _FLOAT32 + 2 * itemsize)
        scores = min(MAX_SCORES, config.num_heads * num_patches**2)
        return num_patches * widths * itemsize + pixels + scores * (2 * _FLOAT32 + itemsize)

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """uint8 [height, width, 3] → [tokens, hidden].

        Raises:
            ValueError: The image is of another size.
        """
        expected = (self.config.image_size, self.config.image_size, _CHANNELS)
        if tuple(pixels.shape) != expected or pixels.dtype != torch.uint8:
            raise ValueError(
                f"an image of {pixels.dtype} {tuple(pixels.shape)}, needed is uint8 {expected}"
            )
        x = self.patches(pixels.to(self.device))
        for layer in self.layers:
            x = layer(x)
        return self.projector(self.norm(x))


def load_siglip(config: VisionConfig, hidden_size: int, reader: TensorReader) -> SiglipEncoder:
    """Load a tower, and the projector to `hidden_size`.

    Raises:
        BadCheckpoint: A tensor is missing, misshapen or of an unsupported type.
    """
    loader = _Loader(config, reader)
    return SiglipEncoder(
        config=config,
        patches=loader.patches(),
        layers=tuple(loader.layer(number) for number in range(config.num_layers)),
        norm=loader.norm("vision_tower.post_layernorm"),
        projector=loader.projector(hidden_size),
        device=reader.empty().device,
    )


class _Loader:
    """Knows how each tensor is named."""

    def __init__(self, config: VisionConfig, reader: TensorReader) -> None:
        self._config = config
        self._reader = reader
        self._width = config.hidden_size

    def patches(self) -> PatchEmbedding:
        prefix, size = "vision_tower.embeddings", self._config.patch_size
        shape = (self._width, _CHANNELS, size, size)
        weight = self._reader.whole(f"{prefix}.patch_embedding.weight", shape)
        bias = self._reader.vector(f"{prefix}.patch_embedding.bias", self._width)
        num_patches = self._config.patches_per_side**2
        positions = self._reader.matrix(
            f"{prefix}.position_embedding.weight", (num_patches, self._width)
        )
        return PatchEmbedding(self._config, Linear(weight.flatten(1), bias), positions)

    def layer(self, number: int) -> VisionLayer:
        prefix, inner = f"vision_tower.encoder.layers.{number}", self._config.intermediate_size
        missing = pad_count(inner, _COLUMN_MULTIPLE) - inner  # as `ranks.layers.mlp` wants it
        up, bias = self._weight_and_bias(f"{prefix}.mlp.fc1", (inner, self._width))
        down, down_bias = self._weight_and_bias(f"{prefix}.mlp.fc2", (self._width, inner))
        return VisionLayer(
            attention_norm=self.norm(f"{prefix}.layer_norm1"),
            attention=self._attention(f"{prefix}.self_attn"),
            mlp_norm=self.norm(f"{prefix}.layer_norm2"),
            up=Linear(functional.pad(up, (0, 0, 0, missing)), functional.pad(bias, (0, missing))),
            down=Linear(functional.pad(down, (0, missing)), down_bias),
        )

    def _attention(self, prefix: str) -> VisionAttention:
        square = (self._width, self._width)
        parts = [self._weight_and_bias(f"{prefix}.{name}_proj", square) for name in "qkv"]
        qkv = Linear(torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts]))
        output = Linear(*self._weight_and_bias(f"{prefix}.out_proj", square))
        return VisionAttention(self._config, qkv, output)

    def norm(self, prefix: str) -> LayerNorm:
        return LayerNorm(
            weight=self._reader.vector(f"{prefix}.weight", self._width),
            bias=self._reader.vector(f"{prefix}.bias", self._width),
            eps=self._config.norm_eps,
        )

    def projector(self, hidden_size: int) -> Projector:
        prefix = "multi_modal_projector"
        weight = self._reader.wide_vector(f"{prefix}.mm_soft_emb_norm.weight", self._width)
        shape = (self._width, hidden_size)
        matrix = self._reader.matrix(f"{prefix}.mm_input_projection_weight", shape)
        norm = RmsNorm(weight + 1, self._config.norm_eps)
        return Projector(self._config, norm, Linear(matrix.T.contiguous()))

    def _weight_and_bias(
        self, prefix: str, shape: tuple[int, int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        weight = self._reader.matrix(f"{prefix}.weight", shape)
        return weight, self._reader.vector(f"{prefix}.bias", shape[0])
