"""What crosses between door and replica: headers, and events that are whole."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lanehost.replicas.call import ReplyHead, WholeEvents, end_to_end

EVENTS = st.lists(st.binary(max_size=6).filter(lambda text: b"\n" not in text), max_size=6)


def cut(stream, cuts):
    places = sorted({0, len(stream), *(place % (len(stream) + 1) for place in cuts)})
    return [stream[start:end] for start, end in pairwise(places)]


@given(EVENTS, st.binary(max_size=4), st.lists(st.integers(0, 60)))
def test_however_a_stream_is_cut_only_whole_events_come_out_and_all_of_them(texts, tail, cuts):
    tail = tail.replace(b"\n", b"")
    stream = b"".join(b"data: " + text + b"\n\n" for text in texts)
    events = WholeEvents()
    given_out = [events.feed(chunk) for chunk in cut(stream + tail, cuts)]
    assert all(part == b"" or part.endswith(b"\n\n") for part in given_out)
    assert b"".join(given_out) == stream
    assert (events.rest(), events.rest()) == (tail, b"")


def test_headers_of_the_connection_stay_and_all_others_go_on_in_order():
    headers = [
        ("Host", "here"),
        ("Authorization", "Bearer k"),
        ("Connection", "close"),
        ("X-A", "1"),
        ("Transfer-Encoding", "chunked"),
        ("x-a", "2"),
        ("Content-Length", "3"),
    ]
    assert end_to_end(headers) == (("authorization", "Bearer k"), ("x-a", "1"), ("x-a", "2"))


def test_a_stream_is_known_by_its_type_alone():
    def head(kind):
        return ReplyHead(status=200, headers=(("content-type", kind),))

    assert head("text/event-stream; charset=utf-8").is_stream
    assert not head("application/json").is_stream
    assert not ReplyHead(status=200, headers=()).is_stream
