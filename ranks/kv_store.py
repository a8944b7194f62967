"""The KV bytes of a rank, by block.

Laws: a block that is opened (its first position is written) is zeroed first, so what
an earlier lane left there, NaN included, cannot reach the next one. Block 0 is empty
for ever and pads block tables; the master's block n is block n + 1 here. Which block
belongs to whom is the master's to know.
"""

import math

import torch

from ranks.errors import OutOfRoom
from ranks.large_pages import map_zeros
from ranks.tiles import check_block_size


class KvStore:
    """Keys and values of the KV heads that this rank holds, for all layers.

    Args:
        num_layers: Layers.
        num_kv_heads: KV heads of this rank.
        head_dim: Values of a head.
        num_blocks: Blocks that the master may name, from 0.
        block_size: Positions in a block.
        like: An empty tensor of the type and on the device to use.

    Raises:
        OutOfRoom: The pool does not fit.
        ValueError: The block size does not fit the tiles of attention.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        num_blocks: int,
        block_size: int,
        like: torch.Tensor,
    ) -> None:
        check_block_size(block_size)
        self.num_blocks = num_blocks
        self.block_size = block_size
        shape = (num_layers, 2, num_kv_heads, num_blocks + 1, block_size, head_dim)
        try:
            # [layers, keys and values, KV heads, blocks, positions, head_dim]
            self._data = _zeros(shape, like)
        except (RuntimeError, OSError, OverflowError) as err:
            raise OutOfRoom(
                f"{num_blocks} KV blocks of {block_size} positions do not fit: {err}"
            ) from err

    @property
    def num_bytes(self) -> int:
        """Bytes of the pool."""
        return self._data.nbytes

    @property
    def pool(self) -> torch.Tensor:
        """The pool itself, [layers, keys and values, KV heads, blocks, positions, head_dim]."""
        return self._data

    def free(self) -> None:
        """Give the memory back, whoever still refers to this; nothing may be called afterwards."""
        self._data.set_(self._data.new_empty(0).untyped_storage())

    def open_blocks(self, block_ids: torch.Tensor) -> None:
        """Zero blocks, int64 [blocks] counted from 1, in all layers."""
        if block_ids.numel():
            self._data.index_fill_(3, block_ids, 0)

    def write(
        self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Write keys and values, each [rows, KV heads, head_dim], to `slots`, int64 [rows]."""
        for pool, rows in zip(self._data[layer], (keys, values), strict=True):
            pool.flatten(1, 2).index_copy_(1, slots, rows.transpose(0, 1))

    def gather(self, layer: int, block_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of blocks, one after the other: each [KV heads, positions, head_dim]."""
        return self._gather(self._data[layer, 0], block_ids), self._gather(
            self._data[layer, 1], block_ids
        )

    @staticmethod
    def _gather(pool: torch.Tensor, block_ids: torch.Tensor) -> torch.Tensor:
        # Head by head: torch spreads this copy over threads only along the first dimension.
        num_heads, _, block_size, head_dim = pool.shape
        found = pool.new_empty(num_heads, block_ids.shape[0], block_size, head_dim)
        for head, part in zip(pool, found, strict=True):
            torch.index_select(head, 0, block_ids, out=part)
        return found.flatten(1, 2)


def _zeros(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    size = math.prod(shape)
    memory = map_zeros(size * like.element_size())
    return torch.frombuffer(memory, dtype=like.dtype, count=size).view(shape)
