import itertools

import pytest

from lanehost.disk_cache.states import (
    TRANSITIONS,
    FileEvent,
    FileState,
    IllegalFileEvent,
    after,
)


def test_each_event_of_the_table_leads_where_it_says():
    assert all(after(*key) is state for key, state in TRANSITIONS.items())


def test_an_event_that_a_state_does_not_have_raises():
    for key in set(itertools.product(FileState, FileEvent)) - set(TRANSITIONS):
        with pytest.raises(IllegalFileEvent, match=key[1].name):
            after(*key)


def test_every_state_lives_through_the_loss_of_an_epoch_or_ends_by_it():
    assert all((state, FileEvent.LOST) in TRANSITIONS for state in FileState)


def test_only_written_verified_and_listed_files_are_saved():
    to_saved = {key for key, state in TRANSITIONS.items() if state is FileState.SAVED}
    assert {state for state, _ in to_saved} == {
        FileState.LISTING,
        FileState.SAVED,
        FileState.CHECKING,
        FileState.ADOPTING,
    }
