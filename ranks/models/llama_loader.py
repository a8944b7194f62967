"""Load this rank's part of a llama-like model, tensor by tensor.

Laws: a shard's MLP width is padded with zeros to a multiple of 16, because torch
computes an odd end of a row with another exponential (`ranks.layers.mlp`); the zeros
add nothing to a sum, and a shard is padded alike wherever it is held.
"""

import torch
from torch.nn import functional

from ranks.layers.attention import AttentionHeads, AttentionKind, SelfAttention
from ranks.layers.embedding import Embedding, Head
from ranks.layers.linear import Linear, RowParallelLinear
from ranks.layers.mlp import Activation, GatedMlp
from ranks.layers.norm import RmsNorm
from ranks.models.llama import Llama, LlamaLayer, LlamaParts
from ranks.shards import Shards, join_heads
from ranks.tiles import pad_count
from ranks.weights.model_config import ModelConfig
from ranks.weights.reader import TensorReader

_COLUMN_MULTIPLE = 16


def load_llama(config: ModelConfig, shards: Shards, reader: TensorReader) -> Llama:
    """Load the parts that `shards` names.

    Raises:
        BadCheckpoint: A tensor is missing, unknown, misshapen or of an unsupported type.
    """
    loader = LlamaReader(config, shards, reader)
    embedding, head = loader.embedding_and_head()
    layers = tuple(loader.layer(number) for number in range(config.num_layers))
    norm = loader.norm("norm.weight", config.hidden_size)
    reader.finish()
    return Llama(
        config,
        shards=shards,
        heads=loader.heads,
        parts=LlamaParts(embedding=embedding, layers=layers, norm=norm, head=head),
        like=reader.empty(),
    )


class LlamaReader:
    """Reads the parts of a llama-like model: knows how each tensor is named and cut."""

    def __init__(self, config: ModelConfig, shards: Shards, reader: TensorReader) -> None:
        self._config = config
        self._shards = shards
        self._reader = reader
        self._head_parts = shards.held_heads(config.num_heads, config.num_kv_heads)
        held = join_heads(self._head_parts)
        self._mlp_parts = shards.held_parts(config.intermediate_size, multiple=_COLUMN_MULTIPLE)
        self.heads = AttentionHeads(
            num_heads=len(held.queries), num_kv_heads=len(held.kv), head_dim=config.head_dim
        )

    def embedding_and_head(self, scale: float | None = None) -> tuple[Embedding, Head]:
        """The table of tokens, whose rows are multiplied by `scale`, and this rank's logits."""
        config = self._config
        shape = (config.vocab_size, config.hidden_size)
        part = _joined(self._shards.held_parts(config.vocab_size, multiple=_COLUMN_MULTIPLE))
        if config.is_tied:
            # transformers ties whatever lm_head.weight holds.
            self._reader.skip("lm_head.weight")
            table, weight = self._reader.table_and_rows("embed_tokens.weight", shape, part)
        else:
            table = self._reader.table("embed_tokens.weight", shape)
            weight = self._reader.matrix("lm_head.weight", shape, rows=part)
        return Embedding(table, scale), Head(weight)

    def norm(self, name: str, width: int) -> RmsNorm:
        """A norm of the model's type."""
        return RmsNorm(self._reader.vector(name, width), self._config.norm_eps)

    def layer(self, number: int) -> LlamaLayer:
        """One layer."""
        prefix, width = f"layers.{number}", self._config.hidden_size
        return LlamaLayer(
            input_norm=self.norm(f"{prefix}.input_layernorm.weight", width),
            attention=self.attention(
                number,
                self._qk_norm(f"{prefix}.self_attn"),
                AttentionKind(
                    window=self._config.layer_windows[number], scale=self._config.head_dim**-0.5
                ),
            ),
            mlp_norm=self.norm(f"{prefix}.post_attention_layernorm.weight", width),
            mlp=self.mlp(number, Activation.SILU),
        )

    def _qk_norm(self, prefix: str) -> tuple[RmsNorm, RmsNorm] | None:
        if not self._config.has_qk_norm:
            return None
        width = self._config.head_dim
        return (
            self.norm(f"{prefix}.q_norm.weight", width),
            self.norm(f"{prefix}.k_norm.weight", width),
        )

    def attention(
        self, number: int, qk_norm: tuple[RmsNorm, RmsNorm] | None, kind: AttentionKind
    ) -> SelfAttention:
        """The attention of one layer."""
        config, prefix = self._config, f"layers.{number}.self_attn"
        return SelfAttention(
            layer=number,
            heads=self.heads,
            qkv=self._merged_qkv(prefix),
            output=self._row_parallel(
                f"{prefix}.o_proj",
                num_inputs=config.num_heads * config.head_dim,
                parts=[self._head_rows(part.queries) for part in self._head_parts],
                has_bias=config.has_output_bias,
            ),
            qk_norm=qk_norm,
            kind=kind,
        )

    def _head_rows(self, heads: range) -> range:
        size = self._config.head_dim
        return range(heads.start * size, heads.stop * size)

    def _merged_qkv(self, prefix: str) -> Linear:
        config, weights, biases = self._config, [], []
        held = join_heads(self._head_parts)
        for name, num_heads, heads in (
            ("q", config.num_heads, held.queries),
            ("k", config.num_kv_heads, held.kv),
            ("v", config.num_kv_heads, held.kv),
        ):
            total, rows = num_heads * config.head_dim, self._head_rows(heads)
            shape = (total, config.hidden_size)
            weights.append(self._reader.matrix(f"{prefix}.{name}_proj.weight", shape, rows=rows))
            if config.has_qkv_bias:
                biases.append(self._reader.vector(f"{prefix}.{name}_proj.bias", total, part=rows))
        return Linear(torch.cat(weights), torch.cat(biases) if biases else None)

    def mlp(self, number: int, activation: Activation) -> GatedMlp:
        """The MLP of one layer."""
        prefix = f"layers.{number}.mlp"
        return GatedMlp(
            gate=self._mlp_columns(f"{prefix}.gate_proj"),
            up=self._mlp_columns(f"{prefix}.up_proj"),
            down=self._row_parallel(
                f"{prefix}.down_proj",
                num_inputs=self._config.intermediate_size,
                parts=self._mlp_parts,
                has_bias=self._config.has_mlp_bias,
            ),
            activation=activation,
        )

    def _mlp_columns(self, prefix: str) -> Linear:
        total = self._config.intermediate_size
        shape = (total, self._config.hidden_size)
        weights = [
            functional.pad(
                self._reader.matrix(f"{prefix}.weight", shape, rows=part), (0, 0, 0, _missing(part))
            )
            for part in self._mlp_parts
        ]
        if not self._config.has_mlp_bias:
            return Linear(torch.cat(weights))
        biases = [
            functional.pad(
                self._reader.vector(f"{prefix}.bias", total, part=part), (0, _missing(part))
            )
            for part in self._mlp_parts
        ]
        return Linear(torch.cat(weights), torch.cat(biases))

    def _row_parallel(
        self, prefix: str, *, num_inputs: int, parts: list[range], has_bias: bool
    ) -> RowParallelLinear:
        num_outputs = self._config.hidden_size
        shape = (num_outputs, num_inputs)
        weights = [
            functional.pad(
                self._reader.matrix(f"{prefix}.weight", shape, columns=part), (0, _missing(part))
            )
            for part in parts
        ]
        bias = self._reader.vector(f"{prefix}.bias", num_outputs) if has_bias else None
        return RowParallelLinear(weights, bias)


def _joined(parts: list[range]) -> range:
    """The held parts as one run: shards are held in order, without gaps."""
    return range(parts[0].start, parts[-1].stop)


def _missing(part: range) -> int:
    """Columns that a shard lacks to a multiple of 16."""
    return pad_count(len(part), _COLUMN_MULTIPLE) - len(part)
