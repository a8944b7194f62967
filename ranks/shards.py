"""The cut of a model into virtual shards, and what ranks say to each other in a step.

Laws: the cut belongs to the model, not to the world. A row-parallel product is
computed per virtual shard and the shards' results are added in shard order, so one
rank that holds both shards and two ranks that hold one each give the same bits (ADR 2).
Where a model has fewer KV heads than shards, query heads are cut and each shard has the KV
heads whole: keys and values are column-parallel, so a copy has the bits of the other (ADR 27).

This module knows no process group: `ranks.process_group` has the real `Collective`.
"""

from dataclasses import dataclass, field
from typing import Protocol

import torch

from ranks.errors import BadCheckpoint

MAX_SHARDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadPart:
    """Query heads of the model, and the KV heads that they use; each one run."""

    queries: range
    kv: range


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """Which virtual shards of the model this rank holds."""

    rank: int
    world_size: int
    held: tuple[int, ...]
    num_shards: int

    def cut(self, total: int, *, multiple: int = 1) -> tuple[range, ...]:
        """Cut `total` units of the model into one run per shard."""
        return cut_evenly(total, self.num_shards, multiple=multiple)

    def held_parts(self, total: int, *, multiple: int = 1) -> list[range]:
        """The runs of `total` units that this rank holds, in shard order."""
        parts = self.cut(total, multiple=multiple)
        return [parts[shard] for shard in self.held]

    def cut_heads(self, num_heads: int, num_kv_heads: int) -> tuple[HeadPart, ...]:
        """Cut heads into one part per shard: whole KV groups, or query heads of shared ones."""
        if num_kv_heads < self.num_shards:
            shared = range(num_kv_heads)
            return tuple(HeadPart(queries=part, kv=shared) for part in self.cut(num_heads))
        size = num_heads // num_kv_heads
        return tuple(
            HeadPart(queries=range(part.start * size, part.stop * size), kv=part)
            for part in self.cut(num_kv_heads)
        )

    def describe_sharing(self, num_kv_heads: int) -> str:
        """Words for what keys and values are: "" where each shard has KV heads of its own."""
        return ", KV heads shared" if num_kv_heads < self.num_shards else ""

    def held_heads(self, num_heads: int, num_kv_heads: int) -> list[HeadPart]:
        """The heads of each shard that this rank holds, in shard order."""
        parts = self.cut_heads(num_heads, num_kv_heads)
        return [parts[shard] for shard in self.held]


def join_heads(parts: list[HeadPart]) -> HeadPart:
    """All heads of some shards that follow one another; shared KV heads are there once."""
    first, last = parts[0], parts[-1]
    return HeadPart(
        queries=range(first.queries.start, last.queries.stop),
        kv=range(first.kv.start, last.kv.stop),
    )


def cut_shards(num_heads: int, *, rank: int, world_size: int) -> Shards:
    """Cut a model with `num_heads` query heads for one rank of the world.

    Raises:
        BadCheckpoint: The model has fewer query heads than the world has ranks.
        ValueError: The world is larger than the number of virtual shards.
    """
    if not 1 <= world_size <= MAX_SHARDS or not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} of {world_size}, the limit is {MAX_SHARDS} ranks")
    num_shards = min(MAX_SHARDS, num_heads)
    if world_size > num_shards:
        raise BadCheckpoint(
            f"num_heads is {num_heads}: the model cannot be cut for {world_size} ranks, "
            f"each needs at least one query head"
        )
    held = tuple(range(num_shards)) if world_size == 1 else (rank,)
    return Shards(rank=rank, world_size=world_size, held=held, num_shards=num_shards)


def cut_evenly(total: int, num_parts: int, *, multiple: int = 1) -> tuple[range, ...]:
    """Cut `total` units into `num_parts` runs, the longer ones first.

    Cuts lie on a `multiple` where that leaves no run empty.
    """
    units = -(-total // multiple)
    if units < num_parts:
        units, multiple = total, 1
    ends = [min(total, -(-units * part // num_parts) * multiple) for part in range(num_parts + 1)]
    return tuple(range(ends[part], ends[part + 1]) for part in range(num_parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Where gloo listens: at an interface, or else at an address of this host."""

    host: str = "127.0.0.1"
    interface: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which rank of how many, in which epoch of their group, and how others reach it."""

    epoch: int
    rank: int
    world_size: int
    network: Network = field(default_factory=Network)


class Exchange(Protocol):
    """What native code exchanges through by itself, without Python between."""

    @property
    def address(self) -> int:
        """Where the native object lies."""
        ...

    def check(self, code: int) -> None:
        """Raise what `code`, the outcome of an exchange, tells."""
        ...


class Collective(Protocol):
    """What the ranks of a group do together within a step."""

    def lend_exchange(self) -> Exchange | None:
        """Lend what native code adds through instead of `all_reduce`; None where Python must."""
        ...

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum over all ranks; may write into `tensor`."""
        ...

    def gather_columns(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Join the last dimension over ranks, in rank order, on the leader; None elsewhere.

        The width of the last dimension may differ from rank to rank.
        """
        ...

    def broadcast_ids(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the leader's `ids`, int64 [n], on every rank."""
        ...


class NoCollective:
    """The collective of a world of one rank."""

    def lend_exchange(self) -> Exchange | None:
        """None: there is nobody to exchange with."""
        return None

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return `tensor` as it is."""
        return tensor

    def gather_columns(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return `tensor` as it is."""
        return tensor

    def broadcast_ids(self, ids: torch.Tensor) -> torch.Tensor:
        """Return `ids` as they are."""
        return ids
