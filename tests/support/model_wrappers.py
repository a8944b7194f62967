"""A loaded model with something in the way: counted, failing, or with rows that are no numbers."""

from collections.abc import Sequence

import torch

from ranks.kv_store import KvStore
from ranks.models.passes import PassState
from ranks.models.registry import CausalLM
from ranks.noise import DrawnRow
from ranks.shards import Collective
from ranks.step_inputs import LaneRows


class WatchedModel:
    """Counts its forward passes; spoils the logits of the draws it is told to, once.

    It raises what it is told to, once, before or behind a forward pass: behind it, all KV
    of the step is written and every collective of the model has begun. `raise_in_slice` is raised
    behind the layers of a slice, once.
    """

    def __init__(self, model: CausalLM) -> None:
        self._model = model
        self.config = model.config
        self.geometry = model.geometry
        self.device = model.device
        self.dtype = model.dtype
        self.num_forwards = 0
        self.spoil_draws: list[int] = []
        self.raise_before: BaseException | None = None
        self.raise_behind: BaseException | None = None
        self.raise_in_slice: BaseException | None = None
        # Layers that slices have run; what passes ended with, and their logits.
        self.slices: list[tuple[int, int]] = []
        self.finished: list[torch.Tensor | None] = []
        self.hidden: list[torch.Tensor] = []
        self.begun: list[Sequence[LaneRows]] = []

    def kv_bytes_per_block(self, block_size: int) -> int:
        return self._model.kv_bytes_per_block(block_size)

    def num_stages(self) -> int:
        return self._model.num_stages()

    def new_kv_store(self, num_blocks: int, block_size: int) -> KvStore:
        return self._model.new_kv_store(num_blocks, block_size)

    def forward(
        self, rows: Sequence[LaneRows], kv: KvStore, collective: Collective
    ) -> torch.Tensor | None:
        self.num_forwards += 1
        error, self.raise_before = self.raise_before, None
        if error is not None:
            raise error
        logits = self._model.forward(rows, kv, collective)
        error, self.raise_behind = self.raise_behind, None
        if error is not None:
            raise error
        if logits is not None and self.spoil_draws:
            logits[self.spoil_draws, 5] = float("nan")
            self.spoil_draws = []
        return logits

    def begin(self, rows: Sequence[LaneRows], kv: KvStore) -> PassState:
        self.begun.append(rows)
        return self._model.begin(rows, kv)

    def run_layers(
        self, state: PassState, first: int, stop: int, kv: KvStore, collective: Collective
    ) -> None:
        self._model.run_layers(state, first, stop, kv, collective)
        error, self.raise_in_slice = self.raise_in_slice, None
        if error is not None:
            raise error
        self.slices.append((first, stop))

    def finish(self, state: PassState, collective: Collective) -> torch.Tensor | None:
        self.hidden.append(state.x)
        self.finished.append(self._model.finish(state, collective))
        return self.finished[-1]

    def draw_rows(self, logits: torch.Tensor, drawn: Sequence[DrawnRow]) -> list[int]:
        return self._model.draw_rows(logits, drawn)

    def parts_ns(self) -> dict[str, int]:
        return self._model.parts_ns()
