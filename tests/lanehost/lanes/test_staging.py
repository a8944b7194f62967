from lanehost.lanes.staging import Staging
from ranks.plan import Chunk

CHUNKS = (
    Chunk(lane_id=0, start=0, token_ids=(1, 2, 3), draws=True),
    Chunk(lane_id=2, start=4, token_ids=(4,), draws=False),
)


def begun(*, layers=2):
    staging = Staging(num_layers=5)
    staging.advance(staging.next_slice(CHUNKS, layers))
    return staging


def test_a_pass_goes_through_all_layers_in_slices_that_name_the_same_rows():
    staging, slices = Staging(num_layers=5), []
    for _ in range(3):
        slices.append(staging.next_slice(CHUNKS, 2))
        staging.advance(slices[-1])
    assert [(one.first_layer, one.stop_layer) for one in slices] == [(0, 2), (2, 4), (4, 5)]
    assert {one.pass_id for one in slices} == {1}
    assert {one.chunks for one in slices} == {CHUNKS}
    assert [staging.ends(one) for one in slices] == [False, False, True]
    assert staging.open is None


def test_while_a_pass_is_open_other_rows_do_not_begin_one():
    staging = begun()
    assert staging.next_slice((), 1).chunks == CHUNKS
    assert staging.open.num_rows == 4


def test_a_pass_after_one_that_ended_has_the_next_id():
    staging = begun(layers=5)
    assert staging.open is None
    assert staging.next_slice(CHUNKS, 5).pass_id == 2


def test_a_slice_that_is_taken_back_is_the_next_one_again():
    staging = begun()
    last = staging.next_slice((), 3)
    staging.advance(last)
    staging.undo(last)
    assert staging.next_slice((), 3) == last


def test_without_its_first_slice_a_pass_is_none():
    staging = Staging(num_layers=5)
    first = staging.next_slice(CHUNKS, 2)
    staging.advance(first)
    staging.undo(first)
    assert staging.open is None
    assert staging.next_slice(CHUNKS, 2).pass_id > first.pass_id


def test_a_pass_that_is_dropped_gives_its_rows_back():
    staging = begun()
    assert tuple(staging.drop()) == CHUNKS
    assert staging.open is None
    assert tuple(staging.drop()) == ()
