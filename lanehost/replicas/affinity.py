"""Which replica a request goes to: the one that knows its prompt's beginning, within a bound.

A pure function of the key, the replicas' names and their loads: the same in every process and
after every restart (no `hash()`), so routers that know nothing of each other agree.

Laws: while its load is within the bound, a key always goes to the same replica; a replica that
leaves moves its own keys and no others, and one that comes takes keys and moves none between
others; nobody is chosen above the bound, so one hot beginning spreads as it gets hotter.

Each replica has a score for each key, and the highest takes it (rendezvous hashing). The bound is
that of consistent hashing with bounded loads: `load_factor` times the mean, but never less
than `spill_above`, since a server computes some requests together for little more than one.
"""

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

MAX_LOAD_FACTOR = 100.0
MAX_SPILL_ABOVE = 1 << 20
_SCORE_BYTES = 8
_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBound:
    """How much more than others a replica may have to do, in requests that are open there.

    Raises:
        ValueError: A value is out of its range.
    """

    load_factor: float = 1.25
    spill_above: int = 8

    def __post_init__(self) -> None:
        """Refuse what cannot work, with the value and the limit."""
        if not 1.0 <= self.load_factor <= MAX_LOAD_FACTOR:
            raise ValueError(
                f"load_factor is {self.load_factor}, allowed is 1 to {MAX_LOAD_FACTOR:g}"
            )
        if not 1 <= self.spill_above <= MAX_SPILL_ABOVE:
            raise ValueError(
                f"spill_above is {self.spill_above}, allowed is 1 to {MAX_SPILL_ABOVE}"
            )

    def limit(self, *, total: int, num_replicas: int) -> int:
        """Return the most requests of one replica, with one more than `total` over all.

        >>> LoadBound(load_factor=1.5, spill_above=2).limit(total=7, num_replicas=2)
        6
        """
        mean = (total + 1) / num_replicas
        return max(self.spill_above, math.ceil(self.load_factor * mean))


def affinity_key(scope: str, head: bytes) -> bytes:
    """Return what requests of one scope have in common whose prompts begin alike."""
    name = scope.encode()
    digest = hashlib.sha256(len(name).to_bytes(_LENGTH_BYTES, "big"))
    digest.update(name)
    digest.update(head)
    return digest.digest()


def by_affinity(key: bytes, replicas: Collection[str]) -> list[str]:
    """Return the replicas, the one that the key belongs to first."""
    return sorted(replicas, key=lambda name: (_score(key, name), name), reverse=True)


def by_turn(
    key: bytes, loads: Mapping[str, int], *, bound: LoadBound, resting: Collection[str] = ()
) -> list[str]:
    """Return the replicas in the order in which they are to be asked.

    Args:
        key: What the request has in common with others.
        loads: How many requests are open at each replica.
        bound: How many are too many.
        resting: Those that do not compute right now; they are asked last.
    """
    awake = {name: load for name, load in loads.items() if name not in resting}
    asleep = {name: load for name, load in loads.items() if name in resting}
    return [*_within(key, awake, bound), *_within(key, asleep, bound)]


def _within(key: bytes, loads: Mapping[str, int], bound: LoadBound) -> list[str]:
    """Those with room by affinity, then the others by load."""
    if not loads:
        return []
    limit = bound.limit(total=sum(loads.values()), num_replicas=len(loads))
    order = by_affinity(key, loads)
    has_room = [name for name in order if loads[name] < limit]
    is_full = [name for name in order if loads[name] >= limit]
    return has_room + sorted(is_full, key=lambda name: loads[name])


def _score(key: bytes, name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=_SCORE_BYTES, key=key).digest()
