"""From logits to token ids, on the leader.

Laws: a row's token depends on its logits, its `Draw` and its position alone. Noise is
keyed by (seed, position, token id). A row that is not finite gives token 0 and its
flag, and leaves its neighbours untouched. Among equal logits the lowest id wins.
"""

import torch

from ranks.plan import Draw


class Sampler:
    """Draw tokens; keeps nothing between calls that could change a draw."""

    def draw(
        self, logits: torch.Tensor, draws: list[Draw], positions: list[int]
    ) -> tuple[torch.Tensor, list[bool]]:
        """Draw one token per row.

        Args:
            logits: float32 [n, vocab].
            draws: How each row draws.
            positions: The position that each drawn token will take.

        Returns:
            int64 [n] on the device of the logits, and whether each row was not finite.
        """
        raise NotImplementedError
