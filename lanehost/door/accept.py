"""Accept or refuse: from a request's numbers to what a job needs; pure.

Laws: what can never fit is refused at once with the numbers; a value out of range is
refused, never clamped; nobody behind this checks again.
"""

import math
from typing import TypeVar

from lanehost.door.model_card import (
    DEFAULT_MIN_P,
    DEFAULT_TEMPERATURE,
    DEFAULT_TOP_K,
    DEFAULT_TOP_P,
    ModelCard,
)
from lanehost.errors import DoesNotFit, InvalidRequest
from lanehost.job import PromptImage, SamplingParams
from ranks.plan import Draw

MAX_TEMPERATURE = 100.0
MAX_SEED = (1 << 64) - 1
MAX_LABEL_CHARACTERS = 256

_T = TypeVar("_T")


def check_label(label: str) -> None:
    """Refuse a label that is too long for a log line.

    Raises:
        InvalidRequest: it has more than 256 characters.
    """
    if len(label) > MAX_LABEL_CHARACTERS:
        message = f"has {len(label)} characters, limit {MAX_LABEL_CHARACTERS}"
        raise InvalidRequest("label", message)


def accept_sampling(sampling: SamplingParams, *, vocab_size: int, fresh_seed: int) -> Draw:
    """Check how tokens are to be drawn, and fill in the defaults.

    Args:
        sampling: As asked for.
        vocab_size: The number of token ids.
        fresh_seed: The seed of a request that names none.

    Raises:
        InvalidRequest: a value is out of range.
    """
    temperature = _or(sampling.temperature, DEFAULT_TEMPERATURE)
    top_p = _or(sampling.top_p, DEFAULT_TOP_P)
    top_k = _or(sampling.top_k, DEFAULT_TOP_K)
    min_p = _or(sampling.min_p, DEFAULT_MIN_P)
    seed = fresh_seed if sampling.seed is None else sampling.seed
    _check("sampling.temperature", temperature, 0.0, MAX_TEMPERATURE)
    if not 0.0 < top_p <= 1.0:
        raise InvalidRequest("sampling.top_p", f"is {top_p}, allowed is above 0 up to 1")
    if top_k is not None:
        _check("sampling.top_k", top_k, 1, vocab_size)
    _check("sampling.min_p", min_p, 0.0, 1.0)
    _check("sampling.seed", seed, 0, MAX_SEED)
    return Draw(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, seed=seed)


def check_prompt_ids(prompt_ids: tuple[int, ...], *, vocab_size: int) -> None:
    """Refuse an empty prompt and an id outside the vocabulary.

    Raises:
        InvalidRequest: it is empty, or an id is not in the vocabulary.
    """
    if not prompt_ids:
        raise InvalidRequest("prompt", "has no tokens, at least 1 is needed")
    if min(prompt_ids) < 0 or max(prompt_ids) >= vocab_size:
        position, token_id = next(
            (position, token_id)
            for position, token_id in enumerate(prompt_ids)
            if not 0 <= token_id < vocab_size
        )
        message = f"id {token_id} at position {position}, allowed is 0 to {vocab_size - 1}"
        raise InvalidRequest("prompt.token_ids", message)


def check_image_ids(
    prompt_ids: tuple[int, ...], images: tuple[PromptImage, ...], *, image_token_id: int
) -> None:
    """Refuse ids that stand for rows of images where there is no image.

    They come from a chat that was tokenized, or from a text that spells them: the model would
    see no picture, and say something all the same.

    Raises:
        InvalidRequest: there are more than the images have.
    """
    num_ids = prompt_ids.count(image_token_id)
    if num_ids != sum(image.num_tokens for image in images):
        raise InvalidRequest(
            "prompt",
            f"has id {image_token_id} at position {prompt_ids.index(image_token_id)}, which "
            "stands for an image, and no image: send a chat with its images",
        )


def accept_length(num_prompt: int, max_tokens: int | None, *, card: ModelCard) -> int:
    """Return the most tokens to generate, or refuse what can never fit.

    A request that names no most tokens gets the default, cut to what is left. One of 0
    warms the prompt cache, and asks for nothing where there is none.

    Raises:
        InvalidRequest: max_tokens is negative, or 0 without a prompt cache.
        DoesNotFit: prompt and reply can never fit the context or the KV pool.
    """
    least = 0 if card.has_prompt_cache else 1
    if max_tokens is not None and max_tokens < least:
        reason = " (0 warms the prompt cache, and --prompt-cache is off)" if max_tokens == 0 else ""
        raise InvalidRequest("max_tokens", f"is {max_tokens}, allowed is {least} and more{reason}")
    limit = min(card.context_length, card.kv_tokens)
    which = "context length" if limit == card.context_length else "KV pool (--kv-tokens)"
    if max_tokens is None:
        max_tokens = max(1, min(card.default_max_tokens, limit - num_prompt))
    if num_prompt + max_tokens > limit:
        left = limit - num_prompt
        way_out = f"max_tokens can be {left}" if left > 0 else "shorten the prompt"
        raise DoesNotFit(
            f"prompt has {num_prompt} tokens, with max_tokens {max_tokens} "
            f"that is {num_prompt + max_tokens}, limit {limit} ({which}); {way_out}",
            have=num_prompt + max_tokens,
            limit=limit,
        )
    return max_tokens


def check_prompt_bytes(
    num_bytes: int, *, longest_token_bytes: int, card: ModelCard, num_image_tokens: int = 0
) -> None:
    """Refuse a prompt that cannot fit however its text is tokenized, before that work is done.

    Raises:
        DoesNotFit: even if every token were the longest there is, there would be too many.
    """
    limit = min(card.context_length, card.kv_tokens)
    at_least = num_bytes // longest_token_bytes + num_image_tokens
    if at_least >= limit:
        beside = f" and images of {num_image_tokens} tokens" if num_image_tokens else ""
        raise DoesNotFit(
            f"prompt has {num_bytes} bytes{beside}, that is at least {at_least} tokens, "
            f"limit {limit}; shorten the prompt",
            have=at_least,
            limit=limit,
        )


def _or(value: _T | None, default: _T) -> _T:
    return default if value is None else value


def _check(field: str, value: float, low: float, high: float) -> None:
    if math.isnan(value) or not low <= value <= high:
        raise InvalidRequest(field, f"is {value}, allowed is {low:g} to {high:g}")
