"""What a family keeps of a prefix, as named tensors: its state.

A state is declared from the weights alone, never from a pool, which may not be there: names,
types, and shapes of which one dimension is the number of blocks. Whoever keeps states
elsewhere than in the pool checks them against this and knows nothing else of a family.
"""

import math
import platform
from dataclasses import dataclass

import torch

# Rises when a family computes other bits of keys or values from the same weights and tokens:
# states kept by an earlier version are then no longer its own.
_REVISION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTensor:
    """One tensor of a state, [heads, blocks, positions of a block, head_dim].

    How values lie within a block is the family's own; a block is kept as it lies in the pool.
    """

    name: str
    dtype: torch.dtype
    num_heads: int
    head_dim: int

    def shape(self, num_blocks: int, *, block_size: int) -> tuple[int, int, int, int]:
        """Its shape for a prefix of so many blocks."""
        return (self.num_heads, num_blocks, block_size, self.head_dim)

    def num_bytes(self, num_blocks: int, *, block_size: int) -> int:
        """Its bytes for a prefix of so many blocks."""
        return math.prod(self.shape(num_blocks, block_size=block_size)) * self.dtype.itemsize


def kv_state(
    *, num_layers: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype
) -> tuple[StateTensor, ...]:
    """State of a family that keeps keys and values of each layer, in the order of the pool."""
    return tuple(
        StateTensor(name=f"layers.{layer}.{part}", dtype=dtype, num_heads=num_kv_heads,
                    head_dim=head_dim)
        for layer in range(num_layers)
        for part in ("keys", "values")
    )  # fmt: skip


def name_exact_layout(dtype: torch.dtype) -> str:
    """Name keys and values whose bits are the same on every processor."""
    return f"revision {_REVISION}, {_name(dtype)}"


def name_torch_layout(dtype: torch.dtype, *, products: str, device: torch.device) -> str:
    """Name keys and values as torch computes them, here: elsewhere their last bits may differ."""
    here = f"torch {torch.__version__} {products} on {_processor(device)}"
    return f"{name_exact_layout(dtype)}, {here}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _processor(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
