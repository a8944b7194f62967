"""What a client may know of the model: limits, and the default of every sampling field."""

from dataclasses import dataclass

from lanehost.job import SamplingParams

# Greedy by default: the same request then gives the same reply, also without a seed (ADR 3).
DEFAULT_TEMPERATURE = 0.0
DEFAULT_TOP_P = 1.0
DEFAULT_TOP_K = None
DEFAULT_MIN_P = 0.0
DEFAULT_MAX_TOKENS = 512
DEFAULT_SAMPLING = SamplingParams(
    temperature=DEFAULT_TEMPERATURE, top_p=DEFAULT_TOP_P, top_k=DEFAULT_TOP_K, min_p=DEFAULT_MIN_P
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageCard:
    """What the model takes of images, and what the server does.

    Each image is `num_tokens` of a prompt; the model sees it `width` x `height` pixels large.
    """

    num_tokens: int
    width: int
    height: int
    max_images: int
    max_image_bytes: int
    max_image_pixels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """The model, its limits and defaults, as GetModel and /v1/models report them.

    `images` is None where the model takes none.
    """

    name: str
    context_length: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    weights_digest: str
    config_digest: str
    world_size: int
    num_lanes: int
    kv_tokens: int
    max_waiting: int
    max_waiting_tokens: int
    max_streams: int
    has_prompt_cache: bool
    default_sampling: SamplingParams
    default_max_tokens: int
    dtype: str
    weights: str
    version: str
    images: ImageCard | None = None
