"""Epochs rise, one at a time; what the link reads early holds for what comes later."""

import pytest

from ranks.epochs import Epochs
from ranks.errors import BadOrder


@pytest.fixture
def epochs():
    return Epochs()


def test_an_epoch_begins_behind_the_one_that_was_left(epochs):
    for epoch in (1, 2, 7):
        assert not epochs.begin(epoch).is_set
        assert epochs.current == epoch
        assert epochs.end(epoch)
        assert epochs.current is None


def test_an_epoch_that_was_not_left_is_in_the_way_of_the_next(epochs):
    epochs.begin(1)
    with pytest.raises(BadOrder, match="Form of epoch 2 came, this rank is in epoch 1"):
        epochs.begin(2)


@pytest.mark.parametrize("epoch", [4, 5])
def test_an_epoch_that_is_not_later_never_begins(epochs, epoch):
    epochs.begin(5)
    epochs.end(5)
    with pytest.raises(BadOrder, match=f"Form of epoch {epoch} came, this rank has known epoch 5"):
        epochs.begin(epoch)


def test_giving_up_aborts_what_is_formed(epochs):
    abort = epochs.begin(1)
    epochs.give_up(1)
    assert abort.is_set
    assert epochs.is_over(1)
    assert not epochs.is_over(2)


def test_an_epoch_that_was_given_up_before_it_began_begins_aborted(epochs):
    epochs.give_up(3)
    assert epochs.begin(3).is_set
    assert epochs.end(3)
    assert not epochs.begin(4).is_set


def test_giving_up_an_older_epoch_aborts_nothing(epochs):
    abort = epochs.begin(2)
    epochs.give_up(1)
    assert not abort.is_set
    assert not epochs.end(1)
    assert epochs.current == 2


def test_an_epoch_can_be_left_twice_and_before_it_begins(epochs):
    assert epochs.end(4)
    assert epochs.end(4)
    with pytest.raises(BadOrder):
        epochs.begin(4)
