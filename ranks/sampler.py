"""From logits to token ids, on the leader.

Laws: a row's token depends on its logits, its `Draw` and its position alone. Noise is
keyed by (seed, position, token id) through an integer hash, so it depends neither on the
batch nor on what was drawn before. A row that is not finite gives no token, and leaves its
neighbours untouched. Among equal logits the lowest id wins.

A drawn row goes: logits / temperature, top_k, top_p, min_p, then the token with the
largest logit plus Gumbel noise, which is a draw from the softmax of what is left.
Sums run in float64 and in a fixed order; rows are drawn one by one.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from ranks.noise import FIRST, MASK, SECOND, STEP, DrawnRow, noise_key
from ranks.plan import Draw

# What a row that is not finite draws.
NOT_FINITE = -1

_UNIFORM_BITS = 52
# top_p looks at so many of the likeliest tokens; what a row flatter than that keeps is
# found among those that are not too unlikely to matter.
_HEADS = (64, 1_024)


def draw_rows(logits: torch.Tensor, drawn: Sequence[DrawnRow]) -> list[int]:
    """The token that each of some rows of float32 logits [n, vocab] draws.

    Where a row is not finite it is `NOT_FINITE`.
    """
    with torch.inference_mode():
        likeliest = _find_likeliest(logits)
        return [
            int(_draw_row(logits[one.row], one.draw, one.position))
            if one.draw.temperature > 0 and likeliest[one.row] != NOT_FINITE
            else likeliest[one.row]
            for one in drawn
        ]


def _find_likeliest(logits: torch.Tensor) -> list[int]:
    """The likeliest token of each row, `NOT_FINITE` where the row is not finite.

    On a CPU by numpy, which is ten times as fast: a row is finite when both its ends are,
    since what is no number is found at either.
    """
    if logits.device.type != "cpu":
        token_ids = torch.argmax(logits, dim=-1)
        return torch.where(torch.isfinite(logits).all(dim=-1), token_ids, NOT_FINITE).tolist()
    values = logits.numpy()
    likeliest = values.argmax(axis=-1)
    most = np.take_along_axis(values, likeliest[:, None], axis=-1)[:, 0]
    is_finite = np.isfinite(most) & np.isfinite(values.min(axis=-1))
    found: list[int] = np.where(is_finite, likeliest, NOT_FINITE).tolist()
    return found


def _draw_row(logits: torch.Tensor, draw: Draw, position: int) -> torch.Tensor:
    """Draw from one finite row, [vocab]; returns an int64 scalar."""
    scores = logits.double() / draw.temperature
    scores -= scores.max()
    token_ids = torch.arange(scores.shape[0], device=scores.device)
    if draw.top_k is not None and draw.top_k < scores.shape[0]:
        scores, token_ids = _keep_top_k(scores, token_ids, draw.top_k)
    if draw.top_p < 1:
        scores, token_ids = _keep_top_p(scores, token_ids, draw.top_p)
    if draw.min_p > 0:
        # The largest score is 0, so exp(score) is the ratio to the largest probability.
        is_kept = scores >= math.log(draw.min_p)
        scores, token_ids = scores[is_kept], token_ids[is_kept]
    noisy = scores + gumbel_noise(token_ids, seed=draw.seed, position=position)
    return token_ids[torch.argmax(noisy)]


def gumbel_noise(token_ids: torch.Tensor, *, seed: int, position: int) -> torch.Tensor:
    """Gumbel noise of some tokens: int64 [n] → float64 [n].

    The hash is of integers, and the same everywhere. Logarithms differ in their last bits
    between devices: rounding to float32 on the way hides most of that, not all.
    """
    key = noise_key(seed, position)
    hashed = _mix_tokens(token_ids * _signed(STEP) + _signed(key))
    bits = (hashed >> (64 - _UNIFORM_BITS)) & ((1 << _UNIFORM_BITS) - 1)
    uniform = (bits.double() + 0.5) * 2.0**-_UNIFORM_BITS
    return -torch.log(-torch.log(uniform)).float().double()


def _keep_top_k(
    scores: torch.Tensor, token_ids: torch.Tensor, top_k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keep the `top_k` largest; of equal ones at the edge those with the lowest ids."""
    edge = torch.topk(scores, top_k).values[-1]
    is_kept = scores > edge
    at_edge = (scores == edge).nonzero().view(-1)
    is_kept[at_edge[: top_k - int(is_kept.sum())]] = True
    return scores[is_kept], token_ids[is_kept]


def _keep_top_p(
    scores: torch.Tensor, token_ids: torch.Tensor, top_p: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keep the shortest run of the likeliest tokens that holds `top_p` of the mass."""
    masses = scores.exp()
    total = masses.cumsum(0)[-1]
    wanted = total * top_p
    for is_head in _heads(scores, masses, spare=total * (1 - top_p)):
        order, mass = _rank_by_mass(scores[is_head])
        if mass[-1] >= wanted:
            scores, token_ids = scores[is_head], token_ids[is_head]
            break
    else:
        order, mass = _rank_by_mass(scores)
    is_kept = torch.ones_like(mass, dtype=torch.bool)
    is_kept[1:] = mass[:-1] < wanted
    kept, _ = torch.sort(order[is_kept])
    return scores[kept], token_ids[kept]


def _heads(
    scores: torch.Tensor, masses: torch.Tensor, *, spare: torch.Tensor
) -> Iterator[torch.Tensor]:
    """Masks of ever more of the likeliest tokens, equal ones together.

    n tokens below `spare` / n have less than `spare` together, so the last head is enough
    but for rounding, and sorting it is cheaper than sorting all.
    """
    for num_head in _HEADS:
        if num_head < scores.shape[0]:
            yield scores >= torch.topk(scores, num_head).values[-1]
    yield masses >= spare / scores.shape[0]


def _rank_by_mass(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The likeliest first, and the mass up to and with each.

    The sort is stable and ids rise, so of equal scores the lowest ids come first.
    """
    ordered, order = torch.sort(scores, descending=True, stable=True)
    return order, ordered.exp().cumsum(0)


def _mix_tokens(values: torch.Tensor) -> torch.Tensor:
    """The finaliser of SplitMix64 over int64 [n]: products wrap, shifts are made logical."""
    values = (values ^ _shift(values, 30)) * _signed(FIRST)
    values = (values ^ _shift(values, 27)) * _signed(SECOND)
    return values ^ _shift(values, 31)


def _shift(values: torch.Tensor, count: int) -> torch.Tensor:
    return (values >> count) & ((1 << (64 - count)) - 1)


def _signed(value: int) -> int:
    """The int64 with the same bits."""
    value &= MASK
    return value - (1 << 64) if value >> 63 else value
