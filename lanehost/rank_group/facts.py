"""What the master knows of the group once every rank has loaded and agreed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """Facts that hold for one epoch; each is the same on every rank, or the smallest of them."""

    epoch: int
    world_size: int
    weights_digest: str
    config_digest: str
    vocab_size: int
    context_length: int
    num_lanes: int
    num_blocks: int
    block_size: int
    max_step_tokens: int
    dtype: str
    device: str
    collective: str

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV pool can hold, over all lanes."""
        return self.num_blocks * self.block_size
