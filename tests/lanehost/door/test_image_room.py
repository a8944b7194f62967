"""The memory for images, counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.door.image_room import ImageRoom
from lanehost.errors import InvalidRequest, Overloaded


def test_what_is_given_back_can_be_taken_again():
    room = ImageRoom(100, {}, retry_after_s=2.0)
    room.take("a", 100)
    with pytest.raises(Overloaded, match="101 bytes of images would be held, limit 100") as refusal:
        room.take("b", 1)
    assert refusal.value.retry_after_s == 2.0
    assert "(--max-held-images)" in str(refusal.value)
    room.give_back("a", 1)
    room.take("b", 1)
    assert room.num_bytes == 100


def test_what_can_never_be_had_is_wrong_and_not_early():
    with pytest.raises(InvalidRequest, match="take 101 bytes, limit 100") as refusal:
        ImageRoom(100, {}, retry_after_s=1.0).take("a", 101)
    assert refusal.value.field == "images"


def test_no_scope_takes_the_share_of_another():
    room = ImageRoom(100, {"a": 1, "b": 1}, retry_after_s=1.0)
    with pytest.raises(Overloaded, match="for you alone"):
        room.take("a", 90)
    room.take("a", 75)
    room.take("b", 25)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), max_size=20))
def test_never_is_more_held_than_the_limit(wanted):
    room = ImageRoom(100, {"a": 2, "b": 1}, retry_after_s=1.0)
    for scope, num_bytes in wanted:
        before = room.num_bytes
        try:
            room.take(scope, num_bytes)
        except Overloaded:
            assert room.num_bytes == before
        assert room.num_bytes <= 100
