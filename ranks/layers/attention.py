"""Self-attention over the paged KV store.

Laws: the bits of a query's result depend on the query and on what it sees, not on the
other queries of its product, nor on how far positions are padded. For that (ADR 2):
queries of one KV head are the rows of a product, at least four; positions are padded
to tiles; the product with the values runs in tiles of fixed length, added in order,
because a matrix library adds in another order when that dimension is longer.

A query sees what lies before it, and of its image's block all (`AttentionGroup.reach`). A
window cuts what lies behind a query, in its block too; what lies ahead in the block is seen
however far it is. That is the mask of the reference.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from ranks.kv_store import KvStore
from ranks.layers.linear import Linear, RowParallelLinear
from ranks.layers.norm import RmsNorm
from ranks.layers.rotary import Rotation, rotate
from ranks.shards import Collective
from ranks.step_inputs import AttentionGroup, StepInputs
from ranks.tiles import pad_count

_VALUE_TILE = 128
# Scores of queries over positions that are held at once, of all heads of this rank: a
# chunk of a long context is cut into parts of so many, a part has at least one query.
MAX_SCORES = 1 << 22
_MIN_QUERY_ROWS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionStep:
    """What all layers of a step share.

    `rotations` has one entry, or a second for layers with rotary positions of their own;
    `hidden` holds, for each window, what the queries of each group do not see:
    bool [lanes, queries, positions].
    """

    inputs: StepInputs
    kv: KvStore
    collective: Collective
    rotations: tuple[Rotation, ...]
    hidden: dict[int | None, list[torch.Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionHeads:
    """The heads that this rank holds."""

    num_heads: int
    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionKind:
    """What tells one layer's attention from another's.

    `window` counts the positions that a token sees, itself included; None sees all.
    `scale` multiplies scores; `rope` says which of the step's rotations is the layer's.
    """

    window: int | None
    scale: float
    rope: int = 0


class SelfAttention:
    """One layer's attention, for the heads of this rank's shards.

    Args:
        layer: The layer's number in the KV store.
        heads: The heads of this rank.
        qkv: Queries, then keys, then values, merged.
        output: Takes the heads' results, head after head.
        qk_norm: Norms of each head's queries and keys, or None.
        kind: Its window, scale and rotary positions.
    """

    def __init__(
        self,
        *,
        layer: int,
        heads: AttentionHeads,
        qkv: Linear,
        output: RowParallelLinear,
        qk_norm: tuple[RmsNorm, RmsNorm] | None,
        kind: AttentionKind,
    ) -> None:
        self._layer = layer
        self._heads = heads
        self._qkv = qkv
        self._output = output
        self._qk_norm = qk_norm
        self._kind = kind

    def __call__(self, x: torch.Tensor, step: AttentionStep) -> torch.Tensor:
        """[padded rows, hidden] → [padded rows, hidden], the same on every rank."""
        heads = self._heads
        merged = self._qkv(x).unflatten(1, (-1, heads.head_dim))
        queries_keys, values = merged.split(
            (heads.num_heads + heads.num_kv_heads, heads.num_kv_heads), dim=1
        )
        if self._qk_norm is not None:
            queries_keys = self._norm_heads(queries_keys, self._qk_norm)
        queries_keys = rotate(queries_keys, step.rotations[self._kind.rope])
        queries, keys = queries_keys.split((heads.num_heads, heads.num_kv_heads), dim=1)
        num_rows = step.inputs.num_rows
        step.kv.write(self._layer, step.inputs.slots, keys[:num_rows], values[:num_rows])
        return self._output(self._attend(queries, step), step.collective)

    def _norm_heads(
        self, queries_keys: torch.Tensor, norms: tuple[RmsNorm, RmsNorm]
    ) -> torch.Tensor:
        queries, keys = queries_keys.split((self._heads.num_heads, self._heads.num_kv_heads), dim=1)
        return torch.cat((norms[0](queries), norms[1](keys)), dim=1)

    def _attend(self, queries: torch.Tensor, step: AttentionStep) -> torch.Tensor:
        """[padded rows, heads, head_dim] → [padded rows, heads · head_dim]."""
        result = queries.new_zeros(queries.shape[0], queries.shape[1] * queries.shape[2])
        for group, hidden in zip(step.inputs.groups, step.hidden[self._kind.window], strict=True):
            part = self._attend_group(queries.index_select(0, group.rows), group, hidden, step.kv)
            result.index_copy_(0, group.rows, part)
        return result

    def _attend_group(
        self, queries: torch.Tensor, group: AttentionGroup, hidden: torch.Tensor, kv: KvStore
    ) -> torch.Tensor:
        """[lanes · queries, heads, head_dim] → [lanes · queries, heads · head_dim]."""
        num_kv, dim, lanes = self._heads.num_kv_heads, self._heads.head_dim, group.num_lanes
        keys, values = (
            part.view(num_kv * lanes, -1, dim) for part in kv.gather(self._layer, group.block_ids)
        )
        # [lanes, queries, KV heads, queries per KV head, head_dim], KV heads to the front
        by_kv_head = queries.view(lanes, -1, num_kv, self._heads.num_heads // num_kv, dim).permute(
            2, 0, 1, 3, 4
        )
        at_once = max(1, MAX_SCORES // (self._heads.num_heads * lanes * group.num_positions))
        weighted = [
            attend(part, unseen, keys, values, scale=self._kind.scale)
            for part, unseen in zip(
                by_kv_head.split(at_once, dim=2), hidden.split(at_once, dim=1), strict=True
            )
        ]
        joined = weighted[0] if len(weighted) == 1 else torch.cat(weighted, dim=2)
        return joined.permute(1, 2, 0, 3, 4).reshape(queries.shape[0], -1)


def attend(
    queries: torch.Tensor,
    hidden: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    scale: float,
) -> torch.Tensor:
    """Attend with some queries of each lane of a group.

    Args:
        queries: [KV heads, lanes, queries, queries per KV head, head_dim].
        hidden: bool [lanes, queries, positions].
        keys: [KV heads · lanes, positions, head_dim].
        values: As the keys.
        scale: Multiplies scores.

    Returns:
        The shape of the queries.
    """
    num_kv, lanes = queries.shape[:2]
    rows = queries.reshape(num_kv * lanes, -1, queries.shape[4])
    num_rows = rows.shape[1]
    rows = functional.pad(rows, (0, 0, 0, pad_count(num_rows, _MIN_QUERY_ROWS) - num_rows))
    scores = torch.baddbmm(rows.new_empty(1), rows, keys.transpose(1, 2), beta=0, alpha=scale)
    seen = scores.view(num_kv, lanes, -1, keys.shape[1])[:, :, :num_rows]
    seen.unflatten(2, queries.shape[2:4]).masked_fill_(hidden[None, :, :, None], float("-inf"))
    return _weigh_values(scores, values)[:, :num_rows].view(queries.shape)


def find_hidden(inputs: StepInputs, window: int | None) -> list[torch.Tensor]:
    """What the queries of each group do not see: bool [lanes, queries, positions]."""
    hidden = []
    for group in inputs.groups:
        at = torch.arange(group.num_positions, device=group.positions.device)
        unseen = at > group.reach.unsqueeze(2)
        if window is not None:
            unseen |= at <= group.positions.unsqueeze(2) - window
        hidden.append(unseen)
    return hidden


def _weigh_values(scores: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Softmax of [heads, queries, positions] times [heads, positions, head_dim]."""
    shares = torch.softmax(scores, dim=-1, dtype=torch.float32).to(values.dtype)
    total: torch.Tensor | None = None
    for share, value in zip(
        shares.split(_VALUE_TILE, dim=2), values.split(_VALUE_TILE, dim=1), strict=True
    ):
        total = torch.bmm(share, value) if total is None else total.baddbmm_(share, value)
    assert total is not None
    return total
