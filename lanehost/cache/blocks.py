"""KV blocks as the master counts them.

Laws: a block has at most one holder; free + taken is always all; what cannot be
taken whole is not taken at all. The bytes themselves are on the ranks.
"""

from collections.abc import Iterable


class BlockFault(AssertionError):
    """A block was given back that nobody had taken."""


class BlockPool:
    """All KV block ids, each free or taken."""

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
        self._taken: set[int] = set()

    def __repr__(self) -> str:
        return f"<BlockPool {self.num_free}/{self._num_blocks} free>"

    @property
    def num_blocks(self) -> int:
        """Blocks in all."""
        return self._num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that `num_tokens` positions need."""
        return -(-num_tokens // self._block_size)

    def take(self, num_blocks: int) -> tuple[int, ...] | None:
        """Take `num_blocks` blocks, or none at all when there are fewer free."""
        if num_blocks > len(self._free):
            return None
        taken = tuple(self._free.pop() for _ in range(num_blocks))
        self._taken.update(taken)
        return taken

    def give_back(self, block_ids: Iterable[int]) -> None:
        """Free blocks that were taken.

        Raises:
            BlockFault: one of them was not taken; nothing is changed.
        """
        returned = list(block_ids)
        if len(set(returned)) != len(returned) or not self._taken.issuperset(returned):
            raise BlockFault(f"blocks {returned} are not all taken: {self!r}")
        self._taken.difference_update(returned)
        self._free.extend(reversed(returned))
