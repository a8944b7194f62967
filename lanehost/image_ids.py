"""Identity ids: what stands for the tokens of a prompt where prompts are compared.

At each position of an image's block an identity id is made of the image's digest, everywhere else
it is the token id (`lanehost.job.Job.identity_ids`, ADR 29). So two images are told apart where
their token ids are the same, and ids alone say where a block begins and ends.

Laws: what two lists of ids are packed to is equal only if they are; no prefix that is to be used
ends inside a block; split and joined again, ids are what they were.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from struct import error, pack

from lanehost.job import IMAGE_ID_BASE

_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRun:
    """Positions that stand for one image: how many, from where on, and the image's digest."""

    start: int
    num_tokens: int
    digest: bytes


def ends_inside(ids: Sequence[int], num_tokens: int) -> bool:
    """Say whether the prefix of so many ids ends inside an image's block.

    >>> cat, dog = IMAGE_ID_BASE + 1, IMAGE_ID_BASE + 2
    >>> [ends_inside((7, cat, cat, dog, 7, 7), length) for length in range(7)]
    [False, False, True, False, False, False, False]
    """
    if not 0 < num_tokens < len(ids):
        return False
    return ids[num_tokens] >= IMAGE_ID_BASE and ids[num_tokens - 1] == ids[num_tokens]


def cut_to_images(ids: Sequence[int], num_tokens: int, *, step: int) -> int:
    """Return the most ids, in whole steps, up to `num_tokens`, that end inside no block."""
    length = num_tokens // step * step
    while ends_inside(ids, length):
        length -= step
    return length


def pack_ids(ids: Sequence[int]) -> bytes:
    """Return bytes that stand for these ids, to be hashed.

    Token ids alone have four bytes each; with an image among them each id is preceded by how many
    bytes it has. Nobody may hash both kinds in one way: see `has_images`.
    """
    try:
        return pack(f"<{len(ids)}I", *ids)
    except error:  # with images, or not of a model
        assert has_images(ids), "an id that is none of a token, and none of an image"
    sizes = ((max(1, (one.bit_length() + 7) // 8), one) for one in ids)
    return b"".join(bytes((size,)) + one.to_bytes(size, "little") for size, one in sizes)


def has_images(ids: Sequence[int]) -> bool:
    """Say whether images stand among these ids."""
    return max(ids, default=0) >= IMAGE_ID_BASE


def split_images(ids: Sequence[int]) -> tuple[tuple[int, ...], tuple[ImageRun, ...]]:
    """Return the ids with 0 where images are, and the images."""
    runs: list[ImageRun] = []
    plain: list[int] = []
    for one, group in groupby(ids):
        num_tokens = sum(1 for _ in group)
        if one >= IMAGE_ID_BASE:
            digest = (one - IMAGE_ID_BASE).to_bytes(_DIGEST_BYTES)
            runs.append(ImageRun(start=len(plain), num_tokens=num_tokens, digest=digest))
            one = 0  # noqa: PLW2901 - what stands for it
        plain += [one] * num_tokens
    return tuple(plain), tuple(runs)


def join_images(plain: Sequence[int], runs: Sequence[ImageRun]) -> tuple[int, ...]:
    """Put images back among ids; what does not fit is left out."""
    ids = list(plain)
    for run in runs:
        stop = min(run.start + run.num_tokens, len(ids))
        ids[run.start : stop] = [IMAGE_ID_BASE + int.from_bytes(run.digest)] * (stop - run.start)
    return tuple(ids)
