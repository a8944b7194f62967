"""Load this rank's part of a Gemma 3, tensor by tensor.

It is a llama with other layers: norms before and behind attention and MLP, weights of norms
that are multiplied in float32, embeddings that are scaled, and two kinds of layers with rotary
positions and windows of their own.

    x ── norm ── attention ── norm ── + x ── norm ── gate, up ── gelu · ── down ── norm ── + x
"""

from dataclasses import dataclass

import torch

from ranks.layers.attention import AttentionKind, AttentionStep, SelfAttention
from ranks.layers.mlp import Activation, GatedMlp
from ranks.layers.norm import RmsNorm
from ranks.models.llama import Llama, LlamaParts
from ranks.models.llama_loader import LlamaReader
from ranks.models.siglip import load_siglip
from ranks.shards import Shards
from ranks.weights.model_config import GemmaConfig, ModelConfig
from ranks.weights.reader import TensorReader

_GLOBAL_ROPE, _LOCAL_ROPE = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmaLayer:
    """One layer of this rank."""

    input_norm: RmsNorm
    attention: SelfAttention
    attention_norm: RmsNorm
    mlp_norm: RmsNorm
    mlp: GatedMlp
    output_norm: RmsNorm

    def __call__(self, x: torch.Tensor, step: AttentionStep) -> torch.Tensor:
        """[padded rows, hidden] → the same; writes into `x`."""
        x.add_(self.attention_norm(self.attention(self.input_norm(x), step)))
        return x.add_(self.output_norm(self.mlp(self.mlp_norm(x), step.collective)))


def load_gemma(config: ModelConfig, shards: Shards, reader: TensorReader) -> Llama:
    """Load the parts that `shards` names.

    Raises:
        BadCheckpoint: A tensor is missing, unknown, misshapen or of an unsupported type.
    """
    assert config.gemma is not None
    loader = _Loader(config, config.gemma, shards, reader)
    embedding, head = loader.parts.embedding_and_head(config.gemma.embedding_scale)
    layers = tuple(loader.layer(number) for number in range(config.num_layers))
    norm = loader.norm("norm.weight", config.hidden_size)
    vision = config.gemma.vision
    encoder = None if vision is None else load_siglip(vision, config.hidden_size, reader)
    reader.finish()
    return Llama(
        config,
        shards=shards,
        heads=loader.parts.heads,
        parts=LlamaParts(
            embedding=embedding, layers=layers, norm=norm, head=head, image_encoder=encoder
        ),
        like=reader.empty(),
    )


class _Loader:
    """Knows what of a layer is not as in a llama."""

    def __init__(
        self, config: ModelConfig, gemma: GemmaConfig, shards: Shards, reader: TensorReader
    ) -> None:
        self._config = config
        self._gemma = gemma
        self._reader = reader
        self.parts = LlamaReader(config, shards, reader)

    def norm(self, name: str, width: int) -> RmsNorm:
        weight = self._reader.wide_vector(name, width)
        return RmsNorm(weight + self._gemma.norm_offset, self._config.norm_eps)

    def layer(self, number: int) -> GemmaLayer:
        prefix, width = f"layers.{number}", self._config.hidden_size
        head_dim, is_local = self._config.head_dim, self._gemma.is_local[number]
        return GemmaLayer(
            input_norm=self.norm(f"{prefix}.input_layernorm.weight", width),
            attention=self.parts.attention(
                number,
                (
                    self.norm(f"{prefix}.self_attn.q_norm.weight", head_dim),
                    self.norm(f"{prefix}.self_attn.k_norm.weight", head_dim),
                ),
                AttentionKind(
                    window=self._config.layer_windows[number],
                    scale=self._gemma.score_scale,
                    rope=_LOCAL_ROPE if is_local else _GLOBAL_ROPE,
                ),
            ),
            attention_norm=self.norm(f"{prefix}.post_attention_layernorm.weight", width),
            mlp_norm=self.norm(f"{prefix}.pre_feedforward_layernorm.weight", width),
            mlp=self.parts.mlp(number, Activation.GELU_TANH),
            output_norm=self.norm(f"{prefix}.post_feedforward_layernorm.weight", width),
        )
