"""One rank, or two ranks in one process, that run steps of a loaded model.

Two ranks are two threads that meet at a barrier for each collective, so a test can
compare one rank and two without processes.
"""

import threading
from functools import partial
from pathlib import Path

import torch

from ranks.models.native_weights import Weights
from ranks.models.registry import CausalLM, load_model, open_checkpoint
from ranks.shards import Collective, NoCollective, cut_shards
from ranks.step_inputs import LaneImage, LaneRows

CPU = torch.device("cpu")


class Meeting:
    """Where two threads exchange what they have."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2, timeout=30)
        self.shares: dict[int, torch.Tensor] = {}

    def exchange(self, rank: int, share: torch.Tensor) -> list[torch.Tensor]:
        self.shares[rank] = share.clone()
        self.barrier.wait()
        shares = [self.shares[0], self.shares[1]]
        self.barrier.wait()
        return shares


class ThreadCollective:
    """The collective of one of two ranks that are threads."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._meeting = meeting
        self._rank = rank

    def lend_exchange(self) -> None:
        return None

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        first, second = self._meeting.exchange(self._rank, tensor)
        return first + second

    def gather_columns(self, tensor: torch.Tensor) -> torch.Tensor | None:
        shares = self._meeting.exchange(self._rank, tensor)
        return torch.cat(shares, dim=-1) if self._rank == 0 else None

    def broadcast_ids(self, ids: torch.Tensor) -> torch.Tensor:
        return self._meeting.exchange(self._rank, ids)[0]


class World:
    """All ranks of a model, each with its KV store."""

    def __init__(self, models: list[CausalLM], num_blocks: int, block_size: int) -> None:
        self.models = models
        self.block_size = block_size
        self.stores = [model.new_kv_store(num_blocks, block_size) for model in models]
        meeting = Meeting()
        self._collectives: list[Collective] = (
            [NoCollective()]
            if len(models) == 1
            else [ThreadCollective(meeting, rank) for rank in range(2)]
        )

    def step(self, rows: list[LaneRows], slices: list[int] | None = None) -> torch.Tensor:
        """Run one step; the leader's logits. With `slices`, layers of each slice, as a pass."""
        results: dict[int, torch.Tensor | None] = {}
        run = self._run if slices is None else partial(self._run_slices, slices)
        followers = [
            threading.Thread(target=run, args=(rank, rows, results))
            for rank in range(1, len(self.models))
        ]
        for thread in followers:
            thread.start()
        run(0, rows, results)
        for thread in followers:
            thread.join()
        assert all(results[rank] is None for rank in range(1, len(self.models)))
        logits = results[0]
        assert logits is not None
        return logits.clone()  # the next step may write to the same place

    def _run(
        self, rank: int, rows: list[LaneRows], results: dict[int, torch.Tensor | None]
    ) -> None:
        results[rank] = self.models[rank].forward(rows, self.stores[rank], self._collectives[rank])

    def _run_slices(
        self,
        slices: list[int],
        rank: int,
        rows: list[LaneRows],
        results: dict[int, torch.Tensor | None],
    ) -> None:
        model, kv, collective = self.models[rank], self.stores[rank], self._collectives[rank]
        state, first = model.begin(rows, kv), 0
        for count in slices:
            model.run_layers(state, first, first + count, kv, collective)
            first += count
        results[rank] = model.finish(state, collective)


def load_world(
    path: Path,
    world_size: int,
    *,
    num_blocks: int = 128,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    weights: Weights = Weights.AUTO,
) -> World:
    """Load a checkpoint on one rank or two."""
    return World(load_models(path, world_size, dtype, weights), num_blocks, block_size)


def load_models(
    path: Path,
    world_size: int,
    dtype: torch.dtype = torch.float32,
    weights: Weights = Weights.AUTO,
) -> list[CausalLM]:
    """Load a checkpoint's parts for all ranks; int8 is the native path."""
    checkpoint = open_checkpoint(path)
    return [
        load_model(
            checkpoint,
            shards=cut_shards(checkpoint.config.num_heads, rank=rank, world_size=world_size),
            device=CPU,
            dtype=dtype,
            weights=weights,
            on_progress=lambda done, total: None,
        )
        for rank in range(world_size)
    ]


class Lane:
    """A lane with blocks of its own, scattered over the pool."""

    def __init__(
        self,
        lane_id: int,
        token_ids: list[int],
        block_table: list[int],
        images: tuple[LaneImage, ...] = (),
    ) -> None:
        self.lane_id = lane_id
        self.images = images
        self.token_ids = list(token_ids)
        self.block_table = block_table
        self.num_computed = 0

    def rows(self, count: int | None = None) -> LaneRows:
        """The next `count` rows, or all that are left; draws when they end the lane."""
        stop = len(self.token_ids) if count is None else self.num_computed + count
        stop = min(stop, len(self.token_ids))
        part = self.token_ids[self.num_computed : stop]
        start, self.num_computed = self.num_computed, stop
        return LaneRows(
            lane_id=self.lane_id,
            start=start,
            token_ids=part,
            block_table=self.block_table,
            num_draws=int(stop == len(self.token_ids)),
            images=tuple(one for one in self.images if start <= one.start < stop),
        )


def scattered_table(lane_id: int, num_lanes: int, num_blocks: int) -> list[int]:
    """Blocks of a lane: every `num_lanes`-th, from the end."""
    return list(range(lane_id, num_blocks, num_lanes))[::-1]


def decode_greedily(world: World, prompt: list[int], count: int) -> list[int]:
    """The prompt in one step, then one token a step, alone."""
    table = scattered_table(0, 1, world.stores[0].num_blocks)
    lane = Lane(0, prompt, table)
    drawn: list[int] = []
    while len(drawn) < count:
        logits = world.step([lane.rows()])
        drawn.append(int(torch.argmax(logits[0])))
        lane.token_ids.append(drawn[-1])
    return drawn
