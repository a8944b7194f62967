"""Images for tests: small, told apart by their number."""

import random
from hashlib import blake2b
from typing import Any

from lanehost.job import Job, PreparedImage, PromptImage
from lanehost.rank_group.facts import GroupFacts, ImageFacts
from tests.support.fake_ranks import fake_facts
from tests.support.jobs import make_job

SOFT_ID = 1
"""The token that stands for rows of images."""


def image_facts(**changes: Any) -> GroupFacts:
    """Facts of ranks that take images of four tokens each."""
    usual = {
        "num_layers": 5,
        "images": ImageFacts(num_tokens=4, token_id=SOFT_ID, width=2, height=2),
        "max_staged_tokens": 24,
        "image_cache_tokens": 20,
    }
    return fake_facts(**(usual | changes))


def prepared(number: int, *, side: int = 2) -> PreparedImage:
    """The image with this number; each number is another image."""
    pixels = random.Random(number).randbytes(side * side * 3)
    return PreparedImage(
        digest=blake2b(b"%d" % number, digest_size=32).digest(),
        width=side,
        height=side,
        pixels=pixels,
    )


def image_job(
    *parts: int | tuple[int, ...],
    num_tokens: int = 4,
    side: int = 2,
    soft_id: int = SOFT_ID,
    **values: object,
) -> Job:
    """A job of texts and images in turn: a tuple is token ids, a number an image.

    >>> image_job((7, 8), 1, (9,)).prompt_ids
    (7, 8, 1, 1, 1, 1, 9)
    """
    ids: list[int] = []
    images: list[PromptImage] = []
    for part in parts:
        if isinstance(part, tuple):
            ids += part
        else:
            images.append(
                PromptImage(start=len(ids), num_tokens=num_tokens, image=prepared(part, side=side))
            )
            ids += [soft_id] * num_tokens
    return make_job(tuple(ids), images=tuple(images), **values)
