"""Images that were uploaded once."""

import pytest

from lanehost.door.image_room import ImageRoom
from lanehost.door.uploads import Uploads
from lanehost.errors import InvalidRequest, Overloaded, UnknownUpload
from lanehost.job import PreparedImage

IMAGE = PreparedImage(digest=bytes(32), width=1, height=1, pixels=b"rgb")


def make(*, limit=1000, max_uploads=4, weights=None):
    weights = weights or {}
    room = ImageRoom(limit, weights, retry_after_s=1.0)
    uploads = Uploads(room, max_uploads=max_uploads, lifetime_s=10.0, weights=weights)
    return room, uploads


def test_an_upload_is_found_by_its_scope_any_number_of_times():
    _, uploads = make()
    made = uploads.keep("a", IMAGE, 0.0)
    assert made.lifetime_s == 10.0
    assert [uploads.find("a", made.upload_id, 1.0) for _ in range(3)] == [IMAGE] * 3


def test_one_of_another_scope_is_as_unknown_as_one_that_never_was():
    _, uploads = make()
    made = uploads.keep("a", IMAGE, 0.0)
    words = []
    for scope, upload_id in (("b", made.upload_id), ("a", "ab" * 12)):
        with pytest.raises(UnknownUpload) as refusal:
            uploads.find(scope, upload_id, 1.0)
        words.append(str(refusal.value).replace(upload_id, "X"))
    assert len(set(words)) == 1
    assert "no upload 'X' is known to you; each is kept 10 s (--upload-lifetime)" in words


def test_a_long_id_is_not_repeated_whole():
    with pytest.raises(UnknownUpload) as refusal:
        make()[1].find("a", "x" * 100_000, 0.0)
    assert len(str(refusal.value)) < 300


def test_none_is_kept_longer_than_its_lifetime():
    room, uploads = make()
    first = uploads.keep("a", IMAGE, 0.0)
    second = uploads.keep("a", IMAGE, 5.0)
    assert uploads.find("a", first.upload_id, 9.9)
    with pytest.raises(UnknownUpload):
        uploads.find("a", first.upload_id, 10.0)
    assert uploads.find("a", second.upload_id, 10.0)
    assert (room.num_bytes, uploads.num_kept) == (3, 1)


def test_one_too_many_is_refused_with_when_a_place_comes_and_none_is_dropped():
    _, uploads = make(max_uploads=2)
    kept = [uploads.keep("a", IMAGE, time_s) for time_s in (0.0, 3.0)]
    with pytest.raises(Overloaded, match=r"3 uploads would be kept, limit 2") as refusal:
        uploads.keep("b", IMAGE, 4.0)
    assert refusal.value.retry_after_s == 6.0
    assert all(uploads.find("a", one.upload_id, 4.0) for one in kept)
    assert uploads.keep("b", IMAGE, 10.0)


def test_a_scope_s_own_uploads_leave_the_share_of_others():
    _, uploads = make(weights={"a": 1, "b": 1})
    for _ in range(3):
        uploads.keep("a", IMAGE, 0.0)
    with pytest.raises(Overloaded, match="for you alone"):
        uploads.keep("a", IMAGE, 1.0)
    assert uploads.keep("b", IMAGE, 1.0)


def test_an_upload_without_room_counts_nowhere():
    room, uploads = make(limit=5)
    uploads.keep("a", IMAGE, 0.0)
    with pytest.raises(Overloaded, match="bytes of images"):
        uploads.keep("a", IMAGE, 0.0)
    with pytest.raises(InvalidRequest):
        uploads.keep("a", PreparedImage(digest=b"", width=1, height=2, pixels=bytes(6)), 0.0)
    assert (room.num_bytes, uploads.num_kept) == (3, 1)
