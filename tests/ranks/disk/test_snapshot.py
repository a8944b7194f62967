"""Blocks into bytes and back: those that were named, in order, while the pool is lent."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ranks.disk.snapshot import PoolGone, PoolLoan, bind
from ranks.models.state import kv_state
from tests.support.disk_files import NUM_BLOCKS, STATE, blocks, new_store

SOME = st.lists(st.integers(0, NUM_BLOCKS - 1), min_size=1, max_size=6, unique=True).map(tuple)


def snapshot(parts, number, block_ids):
    size = STATE[number].num_bytes(len(block_ids), block_size=16)
    into = np.full(size, 0xEE, np.uint8)
    parts.snapshot(number, block_ids, into)
    return into


@given(SOME)
def test_a_snapshot_is_the_blocks_that_were_named_in_order(block_ids):
    store = new_store(seed=1)
    parts = bind(STATE, store.pool)
    for number in range(len(STATE)):
        layer, part = divmod(number, 2)
        expected = blocks(store, block_ids)[layer, part].contiguous()
        assert snapshot(parts, number, block_ids).tobytes() == expected.numpy().tobytes()


@given(SOME, st.data())
def test_what_is_adopted_is_in_those_blocks_and_nowhere_else(block_ids, data):
    to = data.draw(st.permutations(range(NUM_BLOCKS)).map(lambda ids: tuple(ids[: len(block_ids)])))
    source, target = new_store(seed=1), new_store(seed=2)
    rest = tuple(block for block in range(-1, NUM_BLOCKS) if block not in to)
    before = blocks(target, rest).clone()
    ours, theirs = bind(STATE, source.pool), bind(STATE, target.pool)
    for number in range(len(STATE)):
        theirs.adopt(number, to, snapshot(ours, number, block_ids))
    theirs.finish()
    assert torch.equal(blocks(target, to), blocks(source, block_ids))
    assert torch.equal(blocks(target, rest), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_type_that_a_pool_has_is_copied_bit_for_bit(dtype):
    state = kv_state(num_layers=1, num_kv_heads=2, head_dim=8, dtype=dtype)
    pool = torch.randn(1, 2, 2, 4, 16, 8).to(dtype)
    parts, (tensor, _) = bind(state, pool), state
    into = np.empty(tensor.num_bytes(2, block_size=16), np.uint8)
    parts.snapshot(0, (2, 0), into)
    assert torch.equal(torch.from_numpy(into).view(dtype).view(2, 2, 16, 8), pool[0, 0][:, [3, 1]])


@pytest.mark.parametrize(
    "other",
    [
        {"num_layers": 3},
        {"num_kv_heads": 4},
        {"head_dim": 4},
        {"dtype": torch.float32},
    ],
)
def test_a_pool_of_another_state_is_not_bound(other):
    state = kv_state(
        **({"num_layers": 2, "num_kv_heads": 3, "head_dim": 8, "dtype": torch.float16} | other)
    )
    with pytest.raises(ValueError, match="no pool of these"):
        bind(state, new_store().pool)


def test_who_takes_the_pool_back_waits_for_the_copy_that_is_under_way_and_no_other_begins():
    loan = PoolLoan(bind(STATE, new_store().pool), num_blocks=NUM_BLOCKS, block_size=16)
    taken = threading.Event()
    taker = threading.Thread(target=lambda: (loan.take_back(), taken.set()))
    with loan.parts():
        taker.start()
        assert not taken.wait(0.05)
    assert taken.wait(10)
    taker.join()
    with pytest.raises(PoolGone), loan.parts():
        pass


@pytest.mark.gpu
@given(SOME)
def test_a_pool_on_a_gpu_is_copied_as_one_on_the_host(block_ids):
    source, target = new_store(seed=1).pool, new_store(seed=2).pool.cuda()
    host, device = bind(STATE, source), bind(STATE, source.cuda())
    there = bind(STATE, target)
    for number in range(len(STATE)):
        data = snapshot(device, number, block_ids)
        assert data.tobytes() == snapshot(host, number, block_ids).tobytes()
        there.adopt(number, block_ids, data)
    there.finish()
    at = [block + 1 for block in block_ids]
    assert torch.equal(target.cpu()[:, :, :, at], source[:, :, :, at])
