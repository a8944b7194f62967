"""What the llama family needs to know of a model, read from either kind of checkpoint.

Laws: a config that is built has been checked; nobody checks it again.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Facts of a model; the same on every rank."""

    family: str
    vocab_size: int
    context_length: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
