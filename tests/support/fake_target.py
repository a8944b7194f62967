"""What the fake ranks draw: a function of the whole history, images with their rows in it."""

from lanehost.job import Job
from ranks.plan import Draw
from tests.support.fake_images import image_rows

VOCAB_SIZE = 251


def next_token(history: list[int], draw: Draw, vocab_size: int = VOCAB_SIZE) -> int:
    """The target: what a sequence of `history` draws next."""
    mixed = sum(history) * 31 + len(history) * 17 + history[-1] * 7
    if draw.temperature > 0:
        mixed += hash((draw.seed, len(history), round(draw.temperature * 1000)))
    return mixed % vocab_size


def solo_continuation(
    prompt_ids: tuple[int, ...], draw: Draw, num_tokens: int, vocab_size: int = VOCAB_SIZE
) -> list[int]:
    """The reply of a job that runs alone."""
    history = list(prompt_ids)
    for _ in range(num_tokens):
        history.append(next_token(history, draw, vocab_size))
    return history[len(prompt_ids) :]


def solo_reply(job: Job, vocab_size: int = VOCAB_SIZE) -> list[int]:
    """The reply of a job that runs alone, with its images."""
    history = list(job.prompt_ids)
    for one in job.images:
        history[one.start : one.stop] = image_rows(one.image.digest, one.num_tokens)
    return solo_continuation(tuple(history), job.draw, job.max_tokens, vocab_size)
