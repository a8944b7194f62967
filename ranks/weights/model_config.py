"""What the families need to know of a model, read from either kind of checkpoint.

Laws: a config that is built has been checked; nobody checks it again. Its digest is
the same on every rank, whatever the files looked like.
"""

import dataclasses
import json
import math
from dataclasses import dataclass
from hashlib import blake2b

from ranks.errors import BadCheckpoint

# Above these a file is taken for hostile; the largest known models stay far below.
MAX_HEAD_DIM = 4096
_MAX_LAYERS = 1024
_MAX_WIDTH = 1 << 20
_MAX_VOCAB = 1 << 22
_MAX_CONTEXT = 1 << 26
_MAX_IMAGE_SIZE = 1 << 14
_CHANNELS = 3


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise BadCheckpoint(f"rope scaling: {name} is {value}, it must be positive and finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearRope:
    """Positions are divided by `factor`."""

    factor: float

    def __post_init__(self) -> None:
        """Check the factor."""
        _check_positive(factor=self.factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Rope:
    """Low frequencies are divided by `factor`, high ones kept, those between blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context_length: int

    def __post_init__(self) -> None:
        """Check the numbers, and that low lies below high."""
        _check_positive(**dataclasses.asdict(self))
        if self.low_freq_factor >= self.high_freq_factor:
            raise BadCheckpoint(
                f"rope scaling: low_freq_factor is {self.low_freq_factor}, "
                f"it must be below high_freq_factor {self.high_freq_factor}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorRope:
    """Each frequency is divided by a factor of its own (a GGUF's `rope_freqs`)."""

    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check each factor."""
        for value in self.factors:
            _check_positive(factor=value)


RopeScaling = LinearRope | Llama3Rope | FactorRope


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotary positions: the base of their frequencies, and how those are scaled."""

    theta: float
    scaling: RopeScaling | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionConfig:
    """The eyes of a model: a SigLIP tower, and what it takes as an image.

    An image is `image_size` pixels square, in patches of `patch_size`, pooled to
    `tokens_per_side` squared rows, each as the token `image_token_id`. A pixel's value is
    multiplied by `rescale`, less its channel's `mean`, over its `std`.
    """

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    norm_eps: float
    image_size: int
    patch_size: int
    tokens_per_side: int
    image_token_id: int
    rescale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check the numbers against each other and against bounds.

        Raises:
            BadCheckpoint: A number is out of bounds; the message names field and value.
        """
        for field, limit in (
            ("hidden_size", _MAX_WIDTH),
            ("intermediate_size", _MAX_WIDTH),
            ("num_layers", _MAX_LAYERS),
            ("num_heads", _MAX_WIDTH),
            ("image_size", _MAX_IMAGE_SIZE),
            ("patch_size", _MAX_IMAGE_SIZE),
            ("tokens_per_side", _MAX_IMAGE_SIZE),
        ):
            value = getattr(self, field)
            if not 1 <= value <= limit:
                raise BadCheckpoint(f"vision: {field} is {value}, it must be from 1 to {limit}")
        if not 0 <= self.image_token_id < _MAX_VOCAB:
            raise BadCheckpoint(f"vision: image_token_id is {self.image_token_id}")
        for name, total, part in (
            ("hidden_size", self.hidden_size, self.num_heads),
            ("image_size", self.image_size, self.patch_size),
            ("patches a side", self.patches_per_side, self.tokens_per_side),
        ):
            if total % part:
                raise BadCheckpoint(f"vision: {name} is {total}, no multiple of {part}")
        if not 0 < self.norm_eps < 1:
            raise BadCheckpoint(f"vision: norm_eps is {self.norm_eps}, it must be in (0, 1)")
        if len(self.mean) != _CHANNELS or len(self.std) != _CHANNELS or 0 in self.std:
            raise BadCheckpoint(f"vision: mean is {self.mean} and std {self.std}")

    @property
    def patches_per_side(self) -> int:
        """Patches in a row or column of an image."""
        return self.image_size // self.patch_size

    @property
    def head_dim(self) -> int:
        """Values of a head."""
        return self.hidden_size // self.num_heads


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmaConfig:
    """What Gemma 3 has beyond a llama; `vision` is None for one without eyes.

    `local_rope` holds for the layers of which `is_local` says so. Norms multiply by what the
    file holds plus `norm_offset`, scores by `score_scale`, embeddings by `embedding_scale`.
    """

    local_rope: Rope
    is_local: tuple[bool, ...]
    score_scale: float
    embedding_scale: float
    norm_offset: float
    vision: VisionConfig | None = None

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            BadCheckpoint: A number is out of bounds.
        """
        for name, value in (
            ("score_scale", self.score_scale),
            ("embedding_scale", self.embedding_scale),
            ("theta of local layers", self.local_rope.theta),
        ):
            if not 0 < value < math.inf:
                raise BadCheckpoint(f"{name} is {value}, it must be positive and finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Facts of a model; the same on every rank.

    `layer_windows` holds, for each layer, how many positions back a token sees, itself
    included; None sees all. `gemma` is None for the llama-like families.
    """

    family: str
    vocab_size: int
    context_length: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    has_qkv_bias: bool
    has_output_bias: bool
    has_mlp_bias: bool
    has_qk_norm: bool
    is_tied: bool
    layer_windows: tuple[int | None, ...]
    gemma: GemmaConfig | None = None

    def __post_init__(self) -> None:
        """Check the numbers against each other and against bounds.

        Raises:
            BadCheckpoint: A number is out of bounds; the message names field, value and limit.
        """
        for field, limit in (
            ("vocab_size", _MAX_VOCAB),
            ("context_length", _MAX_CONTEXT),
            ("hidden_size", _MAX_WIDTH),
            ("intermediate_size", _MAX_WIDTH),
            ("num_layers", _MAX_LAYERS),
            ("num_heads", _MAX_WIDTH),
            ("num_kv_heads", _MAX_WIDTH),
            ("head_dim", MAX_HEAD_DIM),
        ):
            value = getattr(self, field)
            if not 1 <= value <= limit:
                raise BadCheckpoint(f"{field} is {value}, it must be from 1 to {limit}")
        if self.num_heads % self.num_kv_heads:
            raise BadCheckpoint(
                f"num_heads is {self.num_heads}, not a multiple of num_kv_heads {self.num_kv_heads}"
            )
        if self.head_dim % 2 or self.num_heads * self.head_dim > _MAX_WIDTH:
            raise BadCheckpoint(
                f"head_dim is {self.head_dim} for {self.num_heads} heads: it must be even "
                f"and their product at most {_MAX_WIDTH}"
            )
        if not 0 < self.norm_eps < 1 or not 0 < self.rope_theta < float("inf"):
            raise BadCheckpoint(
                f"norm_eps is {self.norm_eps} and rope_theta {self.rope_theta}: "
                f"they must be in (0, 1) and positive"
            )

    @property
    def rope(self) -> Rope:
        """Rotary positions of the layers that have none of their own."""
        return Rope(theta=self.rope_theta, scaling=self.rope_scaling)

    @property
    def queries_per_kv_head(self) -> int:
        """Query heads that share one KV head."""
        return self.num_heads // self.num_kv_heads

    def digest(self) -> str:
        """BLAKE2b over all fields, in hex."""
        values = dataclasses.asdict(self)
        if self.gemma is None:
            del values["gemma"]  # a model without it has the digest that it always had
        text = json.dumps(values, sort_keys=True)
        return blake2b(text.encode(), digest_size=32).hexdigest()
