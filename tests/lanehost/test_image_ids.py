from hypothesis import given
from hypothesis import strategies as st

from lanehost.image_ids import (
    cut_to_images,
    ends_inside,
    has_images,
    join_images,
    pack_ids,
    split_images,
)
from lanehost.job import IMAGE_ID_BASE

CAT, DOG = IMAGE_ID_BASE + 3, IMAGE_ID_BASE + (1 << 255)
token_ids = st.integers(0, (1 << 32) - 1)
image_ids = st.integers(IMAGE_ID_BASE, IMAGE_ID_BASE + (1 << 256) - 1)
lists_of_ids = st.lists(token_ids | image_ids | st.sampled_from((CAT, DOG)), max_size=12)


@given(lists_of_ids, lists_of_ids)
def test_lists_are_packed_alike_only_if_they_are_alike(ids, others):
    said = (has_images(ids), pack_ids(ids))
    assert (said == (has_images(others), pack_ids(others))) == (ids == others)


@given(lists_of_ids)
def test_split_and_joined_ids_are_what_they_were(ids):
    plain, runs = split_images(ids)
    assert all(0 <= one < 1 << 32 for one in plain)
    assert join_images(plain, runs) == tuple(ids)


@given(lists_of_ids, st.integers(0, 12), st.integers(1, 4))
def test_a_cut_is_the_longest_in_whole_steps_that_ends_inside_no_image(ids, length, step):
    cut = cut_to_images(ids, length, step=step)
    assert cut % step == 0
    assert not ends_inside(ids, cut)
    assert all(ends_inside(ids, longer) for longer in range(cut + step, length + 1, step))


def test_two_images_side_by_side_part_between_them():
    assert not ends_inside((CAT, CAT, DOG, DOG), 2)
    assert ends_inside((CAT, CAT, DOG, DOG), 3)


def test_runs_that_do_not_fit_the_ids_are_cut():
    _, runs = split_images((7, CAT, CAT, CAT))
    assert join_images((7, 0), runs) == (7, CAT)
    assert join_images((), runs) == ()
