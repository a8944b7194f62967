from lanehost.metrics.pauses import Pauses


def test_a_pause_counts_if_a_slice_came_back_in_it():
    pauses = Pauses()
    assert pauses.note_tokens([0, 1], 1.0) == []
    assert pauses.note_tokens([0], 1.5) == []
    pauses.note_slice(2.0)
    assert pauses.note_tokens([0, 1], 2.0) == [0.5, 1.0]
    assert pauses.note_tokens([0, 1], 3.0) == []


def test_a_first_token_ends_no_pause():
    pauses = Pauses()
    pauses.note_slice(1.0)
    assert pauses.note_tokens([0], 2.0) == []


def test_whoever_takes_a_lane_begins_anew():
    pauses = Pauses()
    pauses.note_tokens([0, 1], 1.0)
    pauses.forget(0)
    pauses.note_slice(2.0)
    assert pauses.note_tokens([0, 1], 2.0) == [1.0]
    pauses.forget()
    pauses.note_slice(3.0)
    assert pauses.note_tokens([0, 1], 3.0) == []
