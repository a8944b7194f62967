"""Rows by number: orders alone change what is there, and nothing outlives the store."""

import torch

from ranks.images.store import ImageStore

ROWS = torch.ones(2, 3)


def test_rows_are_there_once_they_were_put():
    store = ImageStore()
    store.expect(4)
    assert store.find(4) is None
    store.put(4, ROWS)
    assert store.find(4) is ROWS
    assert store.find(5) is None


def test_what_was_dropped_is_gone_and_does_not_come_back():
    store = ImageStore()
    for drops_first in (True, False):
        store.expect(4)
        if drops_first:
            store.drop(4)
        store.put(4, ROWS)
        store.drop(4)
        assert store.find(4) is None
    store.drop(99)


def test_what_nobody_ordered_is_not_kept():
    store = ImageStore()
    store.put(4, ROWS)
    assert store.find(4) is None


def test_a_closed_store_holds_nothing_and_takes_nothing():
    store = ImageStore()
    for image_id in (1, 2):
        store.expect(image_id)
    store.put(1, ROWS)
    store.close()
    store.put(2, ROWS)
    store.expect(3)
    store.put(3, ROWS)
    assert [store.find(image_id) for image_id in (1, 2, 3)] == [None] * 3
