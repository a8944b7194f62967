"""The KV bytes of a rank, by block.

Laws: a block that is opened (its first position is written) is zeroed first, so what
an earlier lane left there, NaN included, cannot reach the next one. Which block
belongs to whom is the master's to know.
"""

import torch


class KvStore:
    """Keys and values of the heads that this rank holds."""

    num_blocks: int
    block_size: int
