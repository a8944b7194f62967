"""What the master knows of the group: how far its start is, and what all ranks agreed on."""

from dataclasses import dataclass
from enum import Enum

# Plans that are with the ranks at once: while one runs, the next is there.
MAX_STEPS_IN_FLIGHT = 2


class LoadPhase(Enum):
    """Where the start of the group is."""

    STARTING = "starting"
    LOADING = "loading"
    FORMING = "forming"
    READY = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadState:
    """How far the start is; bytes are summed over the ranks that have told theirs.

    `rank_port` is where agents dial, "" where all ranks are of one host.
    """

    phase: LoadPhase
    world_size: int
    num_connected: int
    num_loaded: int
    done_bytes: int
    total_bytes: int
    rank_port: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """What the images of a model are, all the same.

    Each is `height` lines of `width` pixels and takes `num_tokens` positions of a prompt, at
    each of which `token_id` stands.
    """

    num_tokens: int
    token_id: int
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """Facts that hold for one epoch; each is the same on every rank, or the smallest of them.

    `kv_bytes_per_block` is what a KV block takes on all ranks together, `weights` what weights
    are held as, `kv_layout` what keys and values are and how they were computed; 0 and "" where
    they were not told, as in trails of earlier versions.
    """

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
    kv_bytes_per_block: int = 0
    weights: str = ""
    kv_layout: str = ""
    num_layers: int = 1
    images: ImageFacts | None = None
    max_staged_tokens: int = 0
    image_cache_tokens: int = 0

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV pool can hold, over all lanes."""
        return self.num_blocks * self.block_size
