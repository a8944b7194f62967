"""The llama family on the CPU with quantized weights: the native path.

Laws: products are sums of integers, and what is floating point has one order for each row,
so a row's bits are its own whatever shares its step, however its prompt is cut, on one
rank or two, with any number of threads, on any processor (ADR 14). What a row does not
see is never read: blocks need not be zeroed when they are opened.

    token ids ── table ── x ── engine: all layers ── rows that draw ── head ── logits

Two ranks add what each half of a layer gives. On one host the library does that within the
step, which is one call (ADR 16); over gloo each rank runs half a layer after the other, and the
halves' sums are all-reduced from here. Both add in the order of ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ranks.kv_store import KvStore
from ranks.layers.rotary import Rotary
from ranks.models.llama import describe_geometry
from ranks.models.native_layout import Rotations, lay_out, step_rows
from ranks.models.passes import ImageFacts, PassState
from ranks.models.state import kv_state, name_exact_layout
from ranks.models.step_memory import StepLimits, native_step_bytes, native_step_bytes_per_position
from ranks.native.packing import PackedMatrix
from ranks.native.parts import (
    Engine,
    Floats,
    LayerParts,
    ModelShape,
    StepFrame,
    StepRows,
    StepWords,
)
from ranks.noise import DrawnRow
from ranks.sampler import draw_rows
from ranks.shards import Collective, Exchange, Shards
from ranks.step_inputs import LaneRows
from ranks.weights.model_config import ModelConfig
from ranks.weights.row_table import RowTable

_WHOLE = "the native path runs a step whole, not in slices of layers"


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeParts:
    """The parts of a model on this rank, as the loader makes them.

    `held_as` says whether weights are as they are in the file, or rounded at load.
    """

    shape: ModelShape
    table: RowTable
    layers: tuple[LayerParts, ...]
    norm: Floats
    head: PackedMatrix
    num_logits: int
    held_as: str


class NativeLlama:
    """This rank's part of a llama-like model; implements `CausalLM`.

    Args:
        config: The model's facts.
        shards: What this rank holds.
        parts: The loaded parts.
        engine: What runs the layers.
        num_threads: With how many threads it does.
    """

    dtype = torch.int8  # of activations and products

    def __init__(
        self,
        config: ModelConfig,
        *,
        shards: Shards,
        parts: NativeParts,
        engine: Engine,
        num_threads: int,
    ) -> None:
        self.config = config
        self.device = torch.device("cpu")
        self.geometry = describe_geometry(config, shards)
        self.images: ImageFacts | None = None
        self.products = f"native-{engine.name}"
        self.weights = parts.held_as
        sharing = shards.describe_sharing(config.num_kv_heads)
        self.kv_layout = name_exact_layout(torch.float16) + sharing
        self.state = kv_state(
            num_layers=config.num_layers,
            num_kv_heads=parts.shape.num_kv_heads,
            head_dim=parts.shape.head_dim,
            dtype=torch.float16,
        )
        self._is_leader = shards.rank == 0
        self._holds_all = len(shards.held) == shards.num_shards
        self._parts = parts
        self._engine = engine
        self._num_threads = num_threads
        # What a step needs beside its rows, and the store that it is of.
        self._frame: StepFrame | None = None
        self._framed: KvStore | None = None
        self._rotations = Rotations(
            Rotary(config.rope, head_dim=config.head_dim, device=self.device, dtype=torch.float32),
            config.head_dim // 2,
        )

    def kv_bytes_per_block(self, block_size: int) -> int:
        """Bytes that one KV block needs on this rank, all layers together."""
        shape = self._parts.shape
        values = 2 * shape.num_kv_heads * shape.head_dim * block_size
        return self.config.num_layers * values * torch.float16.itemsize

    def step_bytes(self, limits: StepLimits) -> int:
        """Bytes that the largest step takes, whatever the length of its lanes."""
        return native_step_bytes(
            self.config, self._parts.shape, limits, num_threads=self._num_threads
        )

    def step_bytes_per_block(self, block_size: int, limits: StepLimits) -> int:
        """Bytes that the largest step takes for each block of its longest lane."""
        return block_size * native_step_bytes_per_position(limits, num_threads=self._num_threads)

    def new_kv_store(self, num_blocks: int, block_size: int) -> KvStore:
        """Make the KV store; the pool is zeroed.

        Raises:
            OutOfRoom: The pool does not fit.
            ValueError: The block size does not fit the tiles of attention.
        """
        return KvStore(
            num_layers=self.config.num_layers,
            num_kv_heads=self._parts.shape.num_kv_heads,
            head_dim=self._parts.shape.head_dim,
            num_blocks=num_blocks,
            block_size=block_size,
            like=torch.empty(0, dtype=torch.float16),
        )

    def are_rows_exact(self) -> bool:
        """Whether a row has the same bits in any step: by construction."""
        return True

    @torch.inference_mode()
    def forward(
        self, rows: Sequence[LaneRows], kv: KvStore, collective: Collective
    ) -> torch.Tensor | None:
        """Run one step: float32 logits [draws, vocab] on the leader, None on followers.

        With one rank they lie where the next forward writes its own.
        """
        words = lay_out(rows, block_size=kv.block_size)
        exchange = None
        if not self._holds_all and self._engine.can_exchange:
            exchange = collective.lend_exchange()
        logits = self._run_whole(words, kv, exchange)
        if logits is None:
            logits = self._run_in_parts(words, kv, exchange, collective)
        if not words.draw_rows:
            return torch.empty(0, self.config.vocab_size) if self._is_leader else None
        return collective.gather_columns(torch.from_numpy(logits)[:, : self._parts.num_logits])

    def _adds_within(self, exchange: Exchange | None) -> bool:
        """Whether the engine adds all shards within a step, without Python between."""
        return self._holds_all or exchange is not None

    def _run_whole(self, words: StepWords, kv: KvStore, exchange: Exchange | None) -> Floats | None:
        """Run a step in one call of the library; None where it cannot."""
        table, run = self._parts.table.q8_0, self._engine.forward
        if table is None or run is None or not self._adds_within(exchange):
            return None
        rotations = self._rotations.up_to(max(words.positions) + 1)
        if rotations is None:
            return None
        cos, sin = rotations
        frame = self._frame
        if frame is None or kv is not self._framed or frame.cos is not cos:
            norm, head = self._parts.norm, self._parts.head
            frame = StepFrame(
                table=table.numpy(), cos=cos, sin=sin, norm=norm, head=head, pool=kv.pool.numpy()
            )
            self._frame, self._framed = frame, kv
        return run(frame, words, exchange)

    def _run_in_parts(
        self,
        words: StepWords,
        kv: KvStore,
        exchange: Exchange | None,
        collective: Collective,
    ) -> Floats:
        """Look up, run all layers or half a layer after the other, project."""
        step = step_rows(words, pool=kv.pool.numpy(), rotations=self._rotations)
        token_ids = torch.tensor(words.token_ids, dtype=torch.int64)
        x: Floats = self._parts.table.look_up(token_ids).numpy()
        if self._adds_within(exchange):
            self._engine.run(step, x, exchange)
        else:
            self._run_halves(step, x, collective)
        if not words.draw_rows:
            return np.empty((0, self._parts.head.outputs), dtype=np.float32)
        return self._engine.head(x[words.draw_rows], self._parts.norm, self._parts.head)

    @property
    def num_layers(self) -> int:
        """Layers of a pass."""
        return self.config.num_layers

    def begin(self, *_args: object, **_named: object) -> PassState:
        """Refuse: the library runs a step whole, in one call.

        Raises:
            ValueError: Always.
        """
        raise ValueError(_WHOLE)

    def run_layers(self, *_args: object, **_named: object) -> None:
        """Refuse, as `begin`.

        Raises:
            ValueError: Always.
        """
        raise ValueError(_WHOLE)

    def finish(self, *_args: object, **_named: object) -> torch.Tensor | None:
        """Refuse, as `begin`.

        Raises:
            ValueError: Always.
        """
        raise ValueError(_WHOLE)

    def encode_image(self, *_args: object, **_named: object) -> torch.Tensor:
        """Refuse: the family takes no images.

        Raises:
            ValueError: Always.
        """
        raise ValueError(f"family {self.config.family} takes no images")

    def use_encoder(self, *_args: object) -> None:
        """Refuse: the family takes no images.

        Raises:
            ValueError: Always.
        """
        raise ValueError(f"family {self.config.family} takes no images")

    def draw_rows(self, logits: torch.Tensor, drawn: Sequence[DrawnRow]) -> list[int]:
        """The token that each of some rows of its logits draws; see `CausalLM`."""
        if self._engine.draw_rows is None:
            return draw_rows(logits, drawn)
        return self._engine.draw_rows(logits.contiguous().numpy(), drawn)

    @property
    def parts(self) -> NativeParts:
        """What it was made of."""
        return self._parts

    def parts_ns(self) -> dict[str, int]:
        """Nanoseconds of the parts of the last forward that the engine counts, by name."""
        return self._engine.parts_ns()

    def num_stages(self) -> int:
        """Stages that the engine has run so far, some of them within a layer."""
        return self._engine.num_stages()

    def _run_halves(self, step: StepRows, x: Floats, collective: Collective) -> None:
        for number, layer in enumerate(self._parts.layers):
            share = self._engine.attention_half(step, number, x)
            total = collective.all_reduce(torch.from_numpy(share))
            self._engine.add_total(total.numpy(), layer.output_bias, x)
            share = self._engine.mlp_half(number, x)
            total = collective.all_reduce(torch.from_numpy(share))
            self._engine.add_total(total.numpy(), layer.down_bias, x)
