"""The llama-like families, computed with torch: Llama, SmolLM2, Mistral, Qwen2, Qwen3, Gemma 3.

The cut: KV groups with their query heads, MLP columns and the vocabulary, each in
`num_shards` runs; the embedding is whole on every rank. Merged products (q, k and v)
hold the columns of all held shards; row-parallel ones stay apart per shard (ADR 2).

    x ── norm ── qkv ── rotate ── attend ── output (sum over shards) ── + x
      ── norm ── gate, up ── silu · ── down (sum over shards) ── + x

Gemma 3 has layers of its own (`ranks.models.gemma_loader`), and may have eyes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from ranks.kv_store import KvStore
from ranks.layers.attention import AttentionHeads, AttentionStep, SelfAttention, find_hidden
from ranks.layers.embedding import Embedding, Head
from ranks.layers.linear import are_rows_exact
from ranks.layers.mlp import GatedMlp
from ranks.layers.norm import RmsNorm
from ranks.layers.rotary import Rotary
from ranks.models.passes import ImageFacts, PassState, place_images
from ranks.models.state import kv_state, name_torch_layout
from ranks.models.step_memory import StepLimits, step_bytes, step_bytes_per_position
from ranks.noise import DrawnRow
from ranks.sampler import draw_rows
from ranks.shards import Collective, Shards
from ranks.step_inputs import LaneRows, build_inputs
from ranks.tiles import product_name
from ranks.weights.model_config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaLayer:
    """One layer of this rank."""

    input_norm: RmsNorm
    attention: SelfAttention
    mlp_norm: RmsNorm
    mlp: GatedMlp

    def __call__(self, x: torch.Tensor, step: AttentionStep) -> torch.Tensor:
        """[padded rows, hidden] → the same; writes into `x`."""
        x.add_(self.attention(self.input_norm(x), step))
        return x.add_(self.mlp(self.mlp_norm(x), step.collective))


class Layer(Protocol):
    """One layer of this rank, whatever its family."""

    def __call__(self, x: torch.Tensor, step: AttentionStep) -> torch.Tensor:
        """[padded rows, hidden] → the same; may write into `x`."""
        ...


class ImageEncoder(Protocol):
    """From pixels to the rows that stand for an image; whole on every rank."""

    @property
    def facts(self) -> ImageFacts:
        """What it takes, and what becomes of it."""
        ...

    def num_step_bytes(self, itemsize: int) -> int:
        """Bytes that an image takes while it is encoded, with values of `itemsize` bytes."""
        ...

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """uint8 [height, width, 3] → [tokens, hidden]."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaParts:
    """The parts of a model on this rank, as the loader makes them."""

    embedding: Embedding
    layers: tuple[Layer, ...]
    norm: RmsNorm
    head: Head
    image_encoder: ImageEncoder | None = None


class Llama:
    """This rank's part of a llama-like model; implements `CausalLM`.

    Args:
        config: The model's facts.
        shards: What this rank holds.
        heads: The heads of this rank.
        parts: The loaded parts.
        like: An empty tensor of the type and on the device to compute with.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        shards: Shards,
        heads: AttentionHeads,
        parts: LlamaParts,
        like: torch.Tensor,
    ) -> None:
        self.config = config
        self.device = like.device
        self.dtype = like.dtype
        self.products = product_name(like.device, like.dtype)
        self.weights = str(like.dtype).removeprefix("torch.")
        self.kv_layout = name_torch_layout(
            like.dtype, products=self.products, device=like.device
        ) + shards.describe_sharing(config.num_kv_heads)
        self.state = kv_state(
            num_layers=config.num_layers,
            num_kv_heads=heads.num_kv_heads,
            head_dim=heads.head_dim,
            dtype=like.dtype,
        )
        self.geometry = describe_geometry(config, shards)
        encoder = parts.image_encoder
        self.images = None if encoder is None else encoder.facts
        self._is_leader = shards.rank == 0
        self._mlp_width = sum(map(len, shards.held_parts(config.intermediate_size)))
        self._heads = heads
        self._parts = parts
        self._like = like
        ropes = [config.rope] if config.gemma is None else [config.rope, config.gemma.local_rope]
        self._rotaries = [
            Rotary(rope, head_dim=config.head_dim, device=like.device, dtype=like.dtype)
            for rope in ropes
        ]
        self._num_layers_run = 0

    def kv_bytes_per_block(self, block_size: int) -> int:
        """Bytes that one KV block needs on this rank, all layers together."""
        values = 2 * self._heads.num_kv_heads * self._heads.head_dim * block_size
        return self.config.num_layers * values * self._like.element_size()

    def step_bytes(self, limits: StepLimits) -> int:
        """Bytes that the largest step takes, whatever the length of its lanes.

        An image that is encoded beside it is counted.
        """
        encoder, itemsize = self._parts.image_encoder, self._like.element_size()
        beside = 0 if encoder is None else encoder.num_step_bytes(itemsize)
        return beside + step_bytes(
            self.config, self._heads, limits, mlp_width=self._mlp_width, itemsize=itemsize
        )

    def step_bytes_per_block(self, block_size: int, limits: StepLimits) -> int:
        """Bytes that the largest step takes for each block of its longest lane."""
        return block_size * step_bytes_per_position(
            self.config, self._heads, limits, itemsize=self._like.element_size()
        )

    def new_kv_store(self, num_blocks: int, block_size: int) -> KvStore:
        """Make the KV store; the pool is zeroed.

        Raises:
            OutOfRoom: The pool does not fit.
            ValueError: The block size does not fit the tiles of attention.
        """
        return KvStore(
            num_layers=self.config.num_layers,
            num_kv_heads=self._heads.num_kv_heads,
            head_dim=self._heads.head_dim,
            num_blocks=num_blocks,
            block_size=block_size,
            like=self._like,
        )

    def are_rows_exact(self) -> bool:
        """Whether a row has the same bits in any step, on this machine (ADR 2)."""
        return are_rows_exact(self.device, self.dtype)

    @property
    def num_layers(self) -> int:
        """Layers of a pass."""
        return self.config.num_layers

    def forward(
        self, rows: Sequence[LaneRows], kv: KvStore, collective: Collective
    ) -> torch.Tensor | None:
        """Run one step: float32 logits [draws, vocab] on the leader, None on followers."""
        state = self.begin(rows, kv)
        self.run_layers(state, 0, self.num_layers, kv, collective)
        return self.finish(state, collective)

    @torch.inference_mode()
    def begin(self, rows: Sequence[LaneRows], kv: KvStore) -> PassState:
        """Lay out the rows of a pass, open their blocks, and look up what goes in."""
        inputs = build_inputs(rows, device=self.device, block_size=kv.block_size)
        kv.open_blocks(inputs.opened_blocks)
        return PassState(
            inputs=inputs,
            rotations=tuple(rotary.at(inputs.positions) for rotary in self._rotaries),
            hidden={
                window: find_hidden(inputs, window) for window in set(self.config.layer_windows)
            },
            x=place_images(self._parts.embedding(inputs.token_ids), inputs),
        )

    @torch.inference_mode()
    def run_layers(
        self, state: PassState, first: int, stop: int, kv: KvStore, collective: Collective
    ) -> None:
        """Run the layers from `first` to before `stop`; see `CausalLM`."""
        state.check_slice(first, stop, num_layers=self.num_layers)
        step = AttentionStep(
            inputs=state.inputs,
            kv=kv,
            collective=collective,
            rotations=state.rotations,
            hidden=state.hidden,
        )
        x = state.x.clone()  # layers write into it
        for layer in self._parts.layers[first:stop]:
            x = layer(x, step)
            self._num_layers_run += 1
        state.advance(x, stop)

    @torch.inference_mode()
    def finish(self, state: PassState, collective: Collective) -> torch.Tensor | None:
        """Float32 logits [draws, vocab] on the leader, None on followers."""
        state.check_finished(self.num_layers)
        draw_rows = state.inputs.draw_rows
        if not draw_rows.numel():
            no_draws = torch.empty(0, self.config.vocab_size, device=self.device)
            return no_draws if self._is_leader else None
        drawing = self._parts.norm(state.x.index_select(0, draw_rows))
        return self._parts.head(drawing, collective)

    @torch.inference_mode()
    def encode_image(self, pixels: torch.Tensor) -> torch.Tensor:
        """Make an image's rows; see `CausalLM`."""
        encoder = self._parts.image_encoder
        if encoder is None:
            raise ValueError(f"family {self.config.family} takes no images")
        return encoder(pixels).to(device=self.device, dtype=self.dtype)

    def use_encoder(self, encoder: ImageEncoder) -> None:
        """Encode images with this one from now on, wherever it lies."""
        self._parts = replace(self._parts, image_encoder=encoder)

    def draw_rows(self, logits: torch.Tensor, drawn: Sequence[DrawnRow]) -> list[int]:
        """The token that each of some rows of its logits draws; see `CausalLM`."""
        return draw_rows(logits, drawn)

    def parts_ns(self) -> dict[str, int]:
        """None: torch does not say."""
        return {}

    def num_stages(self) -> int:
        """Layers that were run so far."""
        return self._num_layers_run


def describe_geometry(config: ModelConfig, shards: Shards) -> str:
    """Say how the model is cut: "heads 6+3 of 9, kv 2+1 of 3, this rank holds shard 0"."""
    parts = shards.cut_heads(config.num_heads, config.num_kv_heads)
    kv = "+".join(str(len(part.kv)) for part in parts)
    heads = "+".join(str(len(part.queries)) for part in parts)
    held = " and ".join(str(shard) for shard in shards.held)
    return (
        f"heads {heads} of {config.num_heads}, kv {kv} of {config.num_kv_heads}, "
        f"this rank holds shard {held}"
    )
