"""Model cards for tests."""

from lanehost.door.model_card import DEFAULT_SAMPLING, ModelCard


def make_card(
    *,
    context_length: int = 4096,
    kv_tokens: int = 4096,
    vocab_size: int = 251,
    default_max_tokens: int = 16,
    has_prompt_cache: bool = True,
) -> ModelCard:
    return ModelCard(
        name="fake",
        context_length=context_length,
        vocab_size=vocab_size,
        eos_token_ids=(),
        weights_digest="fake",
        config_digest="fake",
        world_size=1,
        num_lanes=4,
        kv_tokens=kv_tokens,
        max_waiting=8,
        max_waiting_tokens=1000,
        max_streams=16,
        has_prompt_cache=has_prompt_cache,
        default_sampling=DEFAULT_SAMPLING,
        default_max_tokens=default_max_tokens,
        dtype="fake",
        weights="fake",
        version="0",
    )
