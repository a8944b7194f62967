"""Images in random schedules: who has some, how long they take, which cannot be encoded."""

import random
from dataclasses import replace

from lanehost.job import Job, PromptImage
from lanehost.rank_group.image_interface import ImageReason
from ranks.plan import StepPlan
from tests.support.fake_engine import EngineRig
from tests.support.fake_ranks import FakeRanks
from tests.support.images import SOFT_ID, prepared

NUM_TOKENS = 4
# Whoever has it cannot be answered.
BAD_IMAGE = prepared(99)
MS = 1_000_000


def random_image_room(rng: random.Random) -> dict[str, int]:
    """Rows of a pass and rows that are kept: at least those of one image."""
    return {
        "num_layers": rng.choice((1, 2, 5, 9)),
        "max_staged_tokens": rng.choice((4, 7, 24)),
        "image_cache_tokens": rng.choice((4, 8, 40)),
    }


def random_staging(rng: random.Random) -> dict[str, int]:
    """How passes go beside others."""
    return {"staged_rows": rng.choice((1, 4, 6, 16)), "max_stall_ms": rng.choice((0, 1, 20))}


def trouble_images(ranks: FakeRanks, rng: random.Random) -> None:
    """Have images take their time, one fail always, and slices take what they like."""
    most = rng.choice((1, 4, 30))
    assert ranks.images is not None
    ranks.images.turns = lambda: rng.randrange(most)
    ranks.images.fault = lambda image: ImageReason.NOT_FINITE if image == BAD_IMAGE else None
    ranks.takes_ns = lambda _: rng.choice((0, 1, 10, 100)) * MS


def add_images(rng: random.Random, job: Job) -> Job:
    """Put up to four images into a prompt, few different ones, at its beginning or within."""
    images: list[PromptImage] = []
    prompt_ids = job.prompt_ids[:20]
    num_images = rng.choice((0, 0, 1, 1, 2, 4))
    numbers = [rng.choice((1, 1, 2, 3)) for _ in range(num_images)]
    ids: list[int] = []
    at = 0
    for number in numbers:
        text = prompt_ids[at : at + rng.choice((0, 1, 3, 6))]
        at += len(text)
        ids += text
        image = BAD_IMAGE if rng.random() < 0.02 else prepared(number)
        images.append(PromptImage(start=len(ids), num_tokens=NUM_TOKENS, image=image))
        ids += [SOFT_ID] * NUM_TOKENS
    ids += prompt_ids[at:]
    marks = tuple(mark for mark in job.marks if mark <= len(ids))
    return replace(job, prompt_ids=tuple(ids), images=tuple(images), marks=marks)


def names_of_slice(plan: StepPlan) -> set[str]:
    """What befell by a slice that ran."""
    staged = plan.staged
    if staged is None:
        return set()
    return {
        "staged",
        *(["slice"] if staged.first_layer else []),
        *(["staged pass"] if len(staged.chunks) > 1 else []),
        *(["slice beside"] if plan.decodes else []),
    }


def names_of_images(rig: EngineRig) -> set[str]:
    """What befell images."""
    counters = rig.engine.images.counters
    return {
        f"image {name}"
        for name in ("encoded", "cached", "cancelled", "failed", "evicted")
        if getattr(counters, name)
    }
