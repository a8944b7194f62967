"""Which families there are, and how a checkpoint becomes a model on this rank."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch

from ranks.kv_store import KvStore
from ranks.shards import Collective, Shards
from ranks.step_inputs import StepInputs
from ranks.weights.model_config import ModelConfig

OnProgress = Callable[[int, int], None]


class Checkpoint(Protocol):
    """A model's files: facts at once, tensors when asked."""

    @property
    def config(self) -> ModelConfig:
        """The checked facts of the model."""
        ...

    def weights_digest(self) -> str:
        """BLAKE2b over the bytes of all weight files, in hex."""
        ...

    def config_digest(self) -> str:
        """BLAKE2b over the parsed config, in hex."""
        ...


class CausalLM(Protocol):
    """This rank's part of a model."""

    config: ModelConfig
    geometry: str
    device: torch.device
    dtype: torch.dtype

    def kv_bytes_per_block(self, block_size: int) -> int:
        """Bytes that one KV block needs on this rank, all layers together."""
        ...

    def new_kv_store(self, num_blocks: int, block_size: int) -> KvStore:
        """Make the KV store; the pool is zeroed."""
        ...

    def forward(
        self, inputs: StepInputs, kv: KvStore, collective: Collective
    ) -> torch.Tensor | None:
        """Run one step: float32 logits [num_draws, vocab] on the leader, None on followers."""
        ...


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a GGUF file or a folder with config.json and safetensors; loads no tensor.

    Raises:
        BadCheckpoint: The files cannot be used; the message names file and field.
    """
    raise NotImplementedError


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """Map `auto` or `float32` to the type to compute with: bfloat16 only on cuda under `auto`."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name == "float32":
        return torch.float32
    raise ValueError(f"dtype is {name!r}, known are auto and float32")


def load_model(
    checkpoint: Checkpoint,
    *,
    shards: Shards,
    device: torch.device,
    dtype: torch.dtype,
    on_progress: OnProgress,
) -> CausalLM:
    """Load this rank's part; `on_progress(done_bytes, total_bytes)` is called as it goes.

    Raises:
        BadCheckpoint: A tensor is missing, has another shape than the config says, or a
            type that is not supported.
    """
    raise NotImplementedError
