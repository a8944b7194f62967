"""The rendezvous store: what one sets all see, waits and sizes are bounded."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lanehost.errors import InvalidRequest
from lanehost.rank_group.store import (
    MAX_KEY_BYTES,
    MAX_KEYS,
    MAX_VALUE_BYTES,
    MAX_WAITERS,
    RendezvousStore,
)

keys = st.sampled_from(["a", "b", "c"])
values = st.binary(max_size=3)


class AgainstADict(RuleBasedStateMachine):
    """The store does what a plain dict does."""

    def __init__(self):
        super().__init__()
        self.store = RendezvousStore()
        self.model = {}

    @rule(key=keys, value=values)
    def set_key(self, key, value):
        self.store.set(key, value)
        self.model[key] = value

    @rule(key=keys, amount=st.integers(-5, 5))
    def add(self, key, amount):
        held = self.model.get(key, b"0")
        try:
            wanted = int(held) + amount
        except ValueError:
            with pytest.raises(InvalidRequest):
                self.store.add(key, amount)
            return
        assert self.store.add(key, amount) == wanted
        self.model[key] = str(wanted).encode()

    @rule(key=keys, expected=values, desired=values)
    def compare_set(self, key, expected, desired):
        held = self.model.get(key, b"")
        if held == expected:
            self.model[key] = held = desired
        assert self.store.compare_set(key, expected=expected, desired=desired) == held

    @rule(key=keys)
    def delete(self, key):
        assert self.store.delete(key) == (self.model.pop(key, None) is not None)

    @rule(wanted=st.lists(keys))
    def check(self, wanted):
        assert self.store.check(wanted) == all(key in self.model for key in wanted)

    @invariant()
    def same_keys(self):
        assert len(self.store) == len(self.model)


TestAgainstADict = AgainstADict.TestCase


@given(value=values)
def test_a_get_that_waits_is_woken_by_the_set(value):
    async def meet():
        store = RendezvousStore()
        waiting = [asyncio.create_task(store.get("key", timeout_s=5)) for _ in range(3)]
        await asyncio.sleep(0)
        store.set("other", b"no")
        store.set("key", value)
        assert await asyncio.gather(*waiting) == [value] * 3
        assert store.num_waiters == 0

    asyncio.run(meet())


async def test_a_get_that_is_never_answered_ends_in_time_and_leaves_no_waiter():
    store = RendezvousStore()
    with pytest.raises(TimeoutError):
        await store.get("key", timeout_s=0.01)
    assert store.num_waiters == 0


async def test_a_cancelled_get_leaves_no_waiter():
    store = RendezvousStore()
    task = asyncio.create_task(store.get("key", timeout_s=5))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert store.num_waiters == 0


@pytest.mark.parametrize("timeout_s", [-1.0, 301.0, float("inf"), float("nan")])
async def test_a_wait_without_a_bound_is_refused(timeout_s):
    with pytest.raises(InvalidRequest, match="timeout_s"):
        await RendezvousStore().get("key", timeout_s=timeout_s)


def test_keys_and_values_are_bounded_in_size():
    store = RendezvousStore()
    with pytest.raises(InvalidRequest, match=f"limit {MAX_KEY_BYTES}"):
        store.set("k" * (MAX_KEY_BYTES + 1), b"")
    with pytest.raises(InvalidRequest, match=f"limit {MAX_VALUE_BYTES}"):
        store.set("k", bytes(MAX_VALUE_BYTES + 1))
    assert len(store) == 0


def test_keys_are_bounded_in_number_but_old_ones_can_change():
    store = RendezvousStore()
    for number in range(MAX_KEYS):
        store.set(str(number), b"")
    with pytest.raises(InvalidRequest, match=f"limit {MAX_KEYS}"):
        store.set("one more", b"")
    store.set("0", b"new")
    assert len(store) == MAX_KEYS


async def test_waiters_are_bounded_in_number():
    store = RendezvousStore()
    waiting = [asyncio.create_task(store.get("k", timeout_s=5)) for _ in range(MAX_WAITERS)]
    await asyncio.sleep(0)
    with pytest.raises(InvalidRequest, match=f"limit {MAX_WAITERS}"):
        await store.get("k", timeout_s=5)
    store.set("k", b"v")
    await asyncio.gather(*waiting)


async def test_of_an_epoch_that_is_over_nothing_is_kept_and_nobody_waits():
    store = RendezvousStore()
    for key in ("epoch1/a", "epoch2/a", "epoch3/a", "offer/0", "epochs"):
        store.set(key, b"v")
    waiting = asyncio.create_task(store.get("epoch2/b", timeout_s=5))
    await asyncio.sleep(0)
    store.end_epoch(2)
    with pytest.raises(InvalidRequest, match="epoch2/b' is of an epoch that is over"):
        await waiting
    assert [store.check([key]) for key in ("epoch1/a", "epoch2/a")] == [False, False]
    assert store.check(["epoch3/a", "offer/0", "epochs"])
    with pytest.raises(InvalidRequest, match="over"):
        store.set("epoch2/late", b"v")
    with pytest.raises(InvalidRequest, match="over"):
        await store.get("epoch1/a", timeout_s=5)
    store.end_epoch(1)
    with pytest.raises(InvalidRequest, match="over"):
        store.set("epoch2/late", b"v")
