from hypothesis import given
from hypothesis import strategies as st

from lanehost.job import StopParams
from lanehost.journal.records import pack
from lanehost.journal.room import accepted_of, record_room_of, reply_room_of, room_left_of
from lanehost.journal.segment import PROOF
from lanehost.journal.streams import KnownStream
from tests.support.images import image_job, prepared

parts = st.lists(st.one_of(st.integers(1, 5), st.tuples(st.integers(0, 99))), min_size=1)


@given(parts, st.text(max_size=200), st.integers(1, 1 << 30))
def test_no_record_of_an_accepted_request_takes_more_than_its_room(parts, label, max_tokens):
    job = image_job(*parts, label=label, scope="é" * 50, max_tokens=max_tokens)
    stop = StopParams(strings=("ü" * 100, label), token_ids=(1, 2, 3))
    record = PROOF.frame(0, pack(accepted_of(job, stop, (1 << 48) - 1)))
    assert len(record) <= record_room_of(job, stop)


def test_a_record_has_the_images_with_their_pixels():
    (first, second) = accepted_of(image_job((7,), 1, 2), StopParams(), 1).images
    assert (first.start, first.num_tokens, second.start) == (1, 4, 5)
    assert (first.digest, first.pixels) == (prepared(1).digest, prepared(1).pixels)


def test_the_room_of_a_reply_shrinks_as_it_grows():
    job, stop = image_job((7,), max_tokens=10), StopParams()
    known = KnownStream(accepted=accepted_of(job, stop, 1))
    assert room_left_of(known) == reply_room_of(job, stop)
    known.token_ids += [1, 2, 3]
    assert room_left_of(known) < reply_room_of(job, stop)
