"""A loaded model with something in the way: counted, or with rows that are not finite."""

import torch

from ranks.kv_store import KvStore
from ranks.models.registry import CausalLM
from ranks.shards import Collective
from ranks.step_inputs import StepInputs


class WatchedModel:
    """Counts its forward passes; spoils the logits of the draws it is told to, once."""

    def __init__(self, model: CausalLM) -> None:
        self._model = model
        self.config = model.config
        self.geometry = model.geometry
        self.device = model.device
        self.dtype = model.dtype
        self.num_forwards = 0
        self.spoil_draws: list[int] = []

    def kv_bytes_per_block(self, block_size: int) -> int:
        return self._model.kv_bytes_per_block(block_size)

    def new_kv_store(self, num_blocks: int, block_size: int) -> KvStore:
        return self._model.new_kv_store(num_blocks, block_size)

    def forward(
        self, inputs: StepInputs, kv: KvStore, collective: Collective
    ) -> torch.Tensor | None:
        self.num_forwards += 1
        logits = self._model.forward(inputs, kv, collective)
        if logits is not None and self.spoil_draws:
            logits[self.spoil_draws, 5] = float("nan")
            self.spoil_draws = []
        return logits
