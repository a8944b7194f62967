"""KV blocks as the master counts them.

Laws: free + held is always all; a block is free exactly when it has no holder; what
cannot be taken whole is not taken at all. A holder is a lane or an entry of the prompt
cache. A block with several holders is full, and nobody writes it any more. The bytes
themselves are on the ranks.
"""

from collections import Counter
from collections.abc import Iterable


class BlockFault(AssertionError):
    """A block was shared or given back that has no holder."""


class BlockPool:
    """All KV block ids, and how many holders each has."""

    def __init__(self, *, num_blocks: int, block_size: int) -> None:
        """Begin with every block free.

        Args:
            num_blocks: Blocks on each rank.
            block_size: Positions in a block.
        """
        self._block_size = block_size
        self._num_blocks = num_blocks
        # A stack, lowest id on top: blocks used last are used again first, while they are warm.
        self._free = list(range(num_blocks - 1, -1, -1))
        self._num_holders: Counter[int] = Counter()

    def __repr__(self) -> str:
        return f"<BlockPool {self.num_free}/{self._num_blocks} free>"

    @property
    def num_blocks(self) -> int:
        """Blocks in all."""
        return self._num_blocks

    @property
    def block_size(self) -> int:
        """Positions in a block."""
        return self._block_size

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    def num_holders(self, block_id: int) -> int:
        """Return how many hold a block; 0 when it is free."""
        return self._num_holders[block_id]

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that `num_tokens` positions need."""
        return -(-num_tokens // self._block_size)

    def take(self, num_blocks: int) -> tuple[int, ...] | None:
        """Take `num_blocks` free blocks, or none at all when there are fewer."""
        if num_blocks > len(self._free):
            return None
        taken = tuple(self._free.pop() for _ in range(num_blocks))
        self._num_holders.update(taken)
        return taken

    def share(self, block_ids: Iterable[int]) -> None:
        """Add a holder to each block.

        Raises:
            BlockFault: one of them is free; nothing is changed.
        """
        shared = list(block_ids)
        self._check_held(shared)
        self._num_holders.update(shared)

    def give_back(self, block_ids: Iterable[int]) -> None:
        """Take a holder from each block; one without holders is free.

        Raises:
            BlockFault: one of them is free, or named twice; nothing is changed.
        """
        returned = list(block_ids)
        self._check_held(returned)
        for block_id in reversed(returned):
            self._num_holders[block_id] -= 1
            if self._num_holders[block_id] == 0:
                del self._num_holders[block_id]
                self._free.append(block_id)

    def _check_held(self, block_ids: list[int]) -> None:
        is_twice = len(set(block_ids)) != len(block_ids)
        if is_twice or any(self._num_holders[block_id] == 0 for block_id in block_ids):
            raise BlockFault(f"blocks {block_ids} are not all held: {self!r}")
