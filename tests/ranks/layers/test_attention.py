import pytest
import torch
from torch.nn import functional

from ranks.kv_store import KvStore
from ranks.layers.attention import (
    MAX_SCORES,
    AttentionHeads,
    AttentionKind,
    AttentionStep,
    SelfAttention,
    _weigh_values,
    find_hidden,
)
from ranks.layers.linear import Linear, RowParallelLinear
from ranks.layers.rotary import Rotation
from ranks.shards import NoCollective
from ranks.step_inputs import LaneImage, LaneRows, build_inputs
from tests.support.allocations import peak_of_allocations

CPU = torch.device("cpu")
HEADS = AttentionHeads(num_heads=6, num_kv_heads=3, head_dim=16)


def make_attention(window=None):
    generator = torch.Generator().manual_seed(2)
    qkv = torch.randn(12 * 16, 32, generator=generator) * 0.3
    return qkv, SelfAttention(
        layer=0, heads=HEADS, qkv=Linear(qkv), output=RowParallelLinear([torch.eye(96)], None),
        qk_norm=None, kind=AttentionKind(window=window, scale=16**-0.5),
    )  # fmt: skip


def run(attention, x, lanes, store, window=None):
    inputs = build_inputs(lanes, device=CPU, block_size=16)
    store.open_blocks(inputs.opened_blocks)
    rows = torch.zeros(inputs.token_ids.shape[0], 32)
    rows[: inputs.num_rows] = x
    still = Rotation(cos=torch.ones(len(rows), 1, 16), signed_sin=torch.zeros(len(rows), 1, 16))
    step = AttentionStep(
        inputs=inputs, kv=store, collective=NoCollective(), rotations=(still,),
        hidden={window: find_hidden(inputs, window)},
    )  # fmt: skip
    return attention(rows, step)[: inputs.num_rows]


def make_store(num_blocks=64):
    return KvStore(
        num_layers=1, num_kv_heads=3, head_dim=16, num_blocks=num_blocks, block_size=16,
        like=torch.empty(0),
    )  # fmt: skip


def lane(lane_id, start, count, table, images=()):
    return LaneRows(
        lane_id=lane_id, start=start, token_ids=[0] * count, block_table=table, num_draws=0,
        images=tuple(LaneImage(start=at, rows=torch.zeros(size, 32)) for at, size in images),
    )  # fmt: skip


def expected_attention(qkv, x, window=None, images=()):
    queries, keys, values = (x @ qkv.T).view(-1, 12, 16).transpose(0, 1).split((6, 3, 3))
    at = torch.arange(len(x))
    seen = at[None] <= at[:, None]
    for start, size in images:
        seen[start : start + size, start : start + size] = True
    if window is not None:
        seen &= at[None] > at[:, None] - window
    result = functional.scaled_dot_product_attention(
        queries[None], keys[None], values[None], attn_mask=seen, enable_gqa=True
    )
    return result[0].transpose(0, 1).reshape(len(x), 96)


@pytest.mark.parametrize("window", [None, 1, 9])
@pytest.mark.parametrize("count", [1, 3, 130, 300])
def test_it_is_causal_attention_over_groups_of_heads(count, window):
    qkv, attention = make_attention(window)
    x = torch.randn(count, 32)
    found = run(attention, x, [lane(0, 0, count, list(range(60)))], make_store(), window)
    torch.testing.assert_close(found, expected_attention(qkv, x, window), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("window", [None, 1, 9, 40])
@pytest.mark.parametrize("images", [((0, 3),), ((7, 20), (30, 30)), ((100, 170), (270, 20))])
def test_a_query_in_an_image_sees_all_of_it(images, window):
    qkv, attention = make_attention(window)
    x = torch.randn(300, 32)
    lanes = [lane(0, 0, 300, list(range(60)), images)]
    found = run(attention, x, lanes, make_store(), window)
    expected = expected_attention(qkv, x, window, images)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_token_sees_what_earlier_steps_wrote():
    qkv, attention = make_attention()
    x, store, table = torch.randn(50, 32), make_store(), [9, 3, 30, 1]
    parts = [
        run(attention, x[start:stop], [lane(0, start, stop - start, table)], store)
        for start, stop in ((0, 20), (20, 21), (21, 50))
    ]
    torch.testing.assert_close(torch.cat(parts), expected_attention(qkv, x), rtol=1e-4, atol=1e-5)


def test_lanes_of_one_group_do_not_see_each_other():
    qkv, attention = make_attention()
    x = torch.randn(3, 20, 32)
    lanes = [lane(number, 0, 20, [2 * number, 2 * number + 1]) for number in range(3)]
    found = run(attention, x.flatten(0, 1), lanes, make_store()).view(3, 20, 96)
    for one, other in zip(found, x, strict=True):
        torch.testing.assert_close(one, expected_attention(qkv, other), rtol=1e-4, atol=1e-5)


def test_scores_of_a_long_context_are_bounded_and_keep_their_bits():
    """The chunk is cut into parts there; each query alone is the reference."""
    _, attention = make_attention()
    generator = torch.Generator().manual_seed(4)
    start, count, table = 15_872, 128, list(range(1000))
    x = torch.randn(count, 32, generator=generator)
    store = make_store(1000)
    store._data.normal_(generator=generator)
    whole = HEADS.num_heads * count * 16_384  # scores of the chunk in one piece
    assert whole > MAX_SCORES

    with peak_of_allocations() as peak:
        together = run(attention, x, [lane(0, start, count, table)], store)

    assert 2 * 4 * MAX_SCORES * 0.5 < peak.num_bytes < 2 * 4 * MAX_SCORES + (24 << 20)
    written = store._data.clone()
    for at in (0, 1, 63, 64, 84, 85, 86, 127):
        store._data.copy_(written)
        alone = run(attention, x[at : at + 1], [lane(0, start + at, 1, table)], store)
        assert torch.equal(alone[0], together[at])


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("length", [5, 100, 140, 200, 300, 700])
def test_padding_of_positions_queries_and_heads_does_not_change_bits(length, num_threads):
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    generator = torch.Generator().manual_seed(length)
    scores = torch.randn(12, 48, 1024, generator=generator) * 3
    scores[:, :, length:] = float("-inf")
    values = torch.randn(12, 1024, 64, generator=generator)
    shortest = -(-length // 64) * 64
    expected = torch.cat(
        [
            _weigh_values(
                scores[head : head + 1, :4, :shortest], values[head : head + 1, :shortest]
            )
            for head in range(12)
        ]
    )

    unequal = [
        (heads, queries, positions)
        for heads in (1, 2, 3, 7, 12)
        for queries in (4, 8, 12, 48)
        for positions in range(shortest, 1025, 64)
        if not torch.equal(
            _weigh_values(scores[:heads, :queries, :positions], values[:heads, :positions])[:, :4],
            expected[:heads],
        )
    ]

    torch.set_num_threads(before)
    assert unequal == []
