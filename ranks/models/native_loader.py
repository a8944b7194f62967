"""Load this rank's part of a model for the native path, tensor by tensor.

Law: a model that the kernels do not fit is not loaded in part: `ranks.models.native_weights`,
which says what becomes of a matrix, says so before.
"""

import numpy as np
import structlog

from ranks.errors import BadCheckpoint
from ranks.models.native_llama import NativeLlama, NativeParts
from ranks.models.native_weights import MatrixReader
from ranks.native.library import NativeEngine, NoLibrary, open_library
from ranks.native.packing import COLUMNS, GROUP, PackedMatrix
from ranks.native.parts import Engine, Floats, LayerParts, ModelShape
from ranks.native.reference_engine import ReferenceEngine
from ranks.shards import Shards, join_heads
from ranks.weights.model_config import ModelConfig
from ranks.weights.reader import TensorReader

log = structlog.get_logger()


def load_native(
    config: ModelConfig,
    shards: Shards,
    reader: TensorReader,
    matrices: MatrixReader,
    *,
    num_threads: int,
) -> NativeLlama:
    """Load the parts that `shards` names; without a library, to compute them in numpy.

    Raises:
        BadCheckpoint: A tensor is missing, unknown or misshapen, cannot be rounded, or has a
            scale beyond bounds.
    """
    parts = _Loader(config, shards, reader, matrices).load()
    engine = _make_engine(parts, num_threads)
    return NativeLlama(config, shards=shards, parts=parts, engine=engine, num_threads=num_threads)


def _make_engine(parts: NativeParts, num_threads: int) -> Engine:
    try:
        library = open_library()
    except NoLibrary as err:
        log.warning("native_library_absent", reason=str(err), instead="numpy, the same bits")
        return ReferenceEngine(parts.shape, parts.layers)
    return NativeEngine(library, parts.shape, parts.layers, num_threads=num_threads)


class _Loader:
    """Knows how each tensor is named and cut."""

    def __init__(
        self, config: ModelConfig, shards: Shards, reader: TensorReader, matrices: MatrixReader
    ) -> None:
        self._config = config
        self._shards = shards
        self._reader = reader
        self._matrices = matrices
        self._head_parts = shards.held_heads(config.num_heads, config.num_kv_heads)
        self._held = join_heads(self._head_parts)
        self._mlp_parts = shards.held_parts(config.intermediate_size, multiple=GROUP)

    def load(self) -> NativeParts:
        config = self._config
        vocab = _joined(self._shards.held_parts(config.vocab_size, multiple=COLUMNS))
        shape = (config.vocab_size, config.hidden_size)
        table = self._matrices.table("embed_tokens.weight", shape)
        if config.is_tied:
            self._reader.skip("lm_head.weight")
        name = "embed_tokens.weight" if config.is_tied else "lm_head.weight"
        head = self._matrix(name, shape, rows=vocab)
        layers = tuple(self._layer(number) for number in range(config.num_layers))
        norm = self._vector("norm.weight", config.hidden_size)
        self._reader.finish()
        return NativeParts(
            shape=self._shape(),
            table=table,
            layers=layers,
            norm=norm,
            head=head,
            num_logits=len(vocab),
            held_as=self._matrices.held_as,
        )

    def _shape(self) -> ModelShape:
        config = self._config
        return ModelShape(
            hidden=config.hidden_size,
            num_heads=len(self._held.queries),
            num_kv_heads=len(self._held.kv),
            head_dim=config.head_dim,
            head_parts=tuple(len(part.queries) for part in self._head_parts),
            mlp_parts=tuple(map(len, self._mlp_parts)),
            norm_eps=config.norm_eps,
            score_scale=config.head_dim**-0.5,
        )

    def _layer(self, number: int) -> LayerParts:
        config, prefix = self._config, f"layers.{number}"
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        hidden, inner = config.hidden_size, config.intermediate_size
        columns = _joined(self._mlp_parts)
        has_norms, has_bias = config.has_qk_norm, config.has_mlp_bias
        return LayerParts(
            input_norm=self._vector(f"{prefix}.input_layernorm.weight", hidden),
            mlp_norm=self._vector(f"{prefix}.post_attention_layernorm.weight", hidden),
            query_norm=self._head_norm(f"{attention}.q_norm.weight") if has_norms else None,
            key_norm=self._head_norm(f"{attention}.k_norm.weight") if has_norms else None,
            qkv=(
                self._heads(f"{attention}.q_proj.weight", config.num_heads, self._held.queries),
                self._heads(f"{attention}.k_proj.weight", config.num_kv_heads, self._held.kv),
                self._heads(f"{attention}.v_proj.weight", config.num_kv_heads, self._held.kv),
            ),
            qkv_bias=self._qkv_bias(attention) if config.has_qkv_bias else None,
            output=tuple(
                self._matrix(
                    f"{attention}.o_proj.weight",
                    (hidden, config.num_heads * config.head_dim),
                    columns=self._head_rows(part.queries),
                )
                for part in self._head_parts
            ),
            output_bias=(
                self._vector(f"{attention}.o_proj.bias", hidden) if config.has_output_bias else None
            ),
            gate=self._matrix(f"{mlp}.gate_proj.weight", (inner, hidden), rows=columns),
            gate_bias=self._vector(f"{mlp}.gate_proj.bias", inner, columns) if has_bias else None,
            up=self._matrix(f"{mlp}.up_proj.weight", (inner, hidden), rows=columns),
            up_bias=self._vector(f"{mlp}.up_proj.bias", inner, columns) if has_bias else None,
            down=tuple(
                self._matrix(f"{mlp}.down_proj.weight", (hidden, inner), columns=part)
                for part in self._mlp_parts
            ),
            down_bias=self._vector(f"{mlp}.down_proj.bias", hidden) if has_bias else None,
            window=config.layer_windows[number],
        )

    def _matrix(
        self, name: str, shape: tuple[int, int], *, rows: range | None = None,
        columns: range | None = None,
    ) -> PackedMatrix:  # fmt: skip
        rows = range(shape[0]) if rows is None else rows
        columns = range(shape[1]) if columns is None else columns
        try:
            return self._matrices.matrix(name, shape, rows=rows, columns=columns)
        except OverflowError as err:
            raise BadCheckpoint(f"tensor {name!r}: {err}; --dtype float32 takes it") from err

    def _heads(self, name: str, num_heads: int, heads: range) -> PackedMatrix:
        shape = (num_heads * self._config.head_dim, self._config.hidden_size)
        return self._matrix(name, shape, rows=self._head_rows(heads))

    def _head_rows(self, heads: range) -> range:
        size = self._config.head_dim
        return range(heads.start * size, heads.stop * size)

    def _qkv_bias(self, prefix: str) -> Floats:
        biases = []
        for name, num_heads, heads in (
            ("q", self._config.num_heads, self._held.queries),
            ("k", self._config.num_kv_heads, self._held.kv),
            ("v", self._config.num_kv_heads, self._held.kv),
        ):
            total = num_heads * self._config.head_dim
            biases.append(self._vector(f"{prefix}.{name}_proj.bias", total, self._head_rows(heads)))
        return np.concatenate(biases)

    def _head_norm(self, name: str) -> Floats:
        return self._vector(name, self._config.head_dim)

    def _vector(self, name: str, length: int, part: range | None = None) -> Floats:
        vector: Floats = self._reader.vector(name, length, part=part).numpy()
        return np.ascontiguousarray(vector, dtype=np.float32)


def _joined(parts: list[range]) -> range:
    """The held parts as one run: shards are held in order, without gaps."""
    return range(parts[0].start, parts[-1].stop)
