"""What is asked and when, by seed; pure.

Laws: the same seed gives the same prompts, lengths and arrivals. No two prompts begin
alike by design, beyond the prefix that they were given.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

# Special tokens lie at either end of a vocabulary.
_ENDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request: its prompt, how many tokens its reply will have, what a disk does for it."""

    token_ids: tuple[int, ...]
    max_tokens: int
    disk_cache: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Token counts to choose from, each as likely; one of each is a fixed length."""

    prompt: tuple[int, ...]
    reply: tuple[int, ...]


def random_ids(rng: random.Random, count: int, vocab_size: int) -> tuple[int, ...]:
    """Draw token ids from the middle of a vocabulary."""
    low, high = vocab_size // _ENDS, vocab_size - vocab_size // _ENDS
    return tuple(rng.randrange(low, high) for _ in range(count))


def make_asks(
    lengths: Lengths, *, vocab_size: int, seed: str, prefix: tuple[int, ...] = ()
) -> Iterator[Ask]:
    """Give requests without end; every prompt is `prefix` and ids of its own."""
    rng = random.Random(seed)  # noqa: S311 - no secrets
    while True:
        own = random_ids(rng, rng.choice(lengths.prompt), vocab_size)
        yield Ask(token_ids=prefix + own, max_tokens=rng.choice(lengths.reply))


def poisson_arrivals(rate: float, *, count: int, seed: str) -> list[float]:
    """Seconds from the start at which `count` requests arrive, `rate` a second on average.

    Their gaps are exponential: requests of many clients that know nothing of each other.
    """
    rng = random.Random(seed)  # noqa: S311 - no secrets
    arrivals: list[float] = []
    at_s = 0.0
    for _ in range(count):
        at_s += rng.expovariate(rate)
        arrivals.append(at_s)
    return arrivals
