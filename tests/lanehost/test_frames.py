"""Frames: what is read is what was written, and nothing else."""

import io

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.frames import (
    HEAD_BYTES,
    FrameChanged,
    FrameReader,
    NotARecord,
    Proof,
    unpack_fields,
)

PROOF = Proof(b"test")
LIMIT = 1000
payloads = st.lists(st.binary(max_size=40), max_size=6)


def written(parts, proof=PROOF):
    return b"".join(proof.frame(number, part) for number, part in enumerate(parts))


def reader(content):
    return FrameReader(io.BytesIO(content), PROOF, max_payload_bytes=LIMIT)


def read_all(frames):
    return list(iter(frames.next_payload, None))


@given(payloads, st.integers(0, 400))
def test_a_file_that_is_cut_anywhere_gives_its_whole_frames(parts, cut):
    content = written(parts)[:cut]
    ends = [len(written(parts[: count + 1])) for count in range(len(parts))]
    whole = [part for part, end in zip(parts, ends, strict=True) if end <= len(content)]
    frames = reader(content)
    assert read_all(frames) == whole
    assert frames.num_torn_bytes == len(content) - len(written(whole))


@given(payloads.filter(bool), st.data())
def test_a_changed_byte_never_gives_another_payload(parts, data):
    content = bytearray(written(parts))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    frames, read = reader(bytes(content)), list[bytes]()
    with pytest.raises(FrameChanged) as changed:
        read.extend(iter(frames.next_payload, None))
    assert read == parts[: changed.value.number]
    if changed.value.can_go_on:
        assert read_all(frames) == parts[changed.value.number + 1 :]


@given(payloads, st.integers(1, 100))
def test_room_that_was_not_written_is_an_end(parts, room):
    frames = reader(written(parts) + bytes(room))
    assert read_all(frames) == parts
    assert frames.num_torn_bytes == room


def test_a_head_that_was_begun_and_has_nothing_behind_it_is_told_apart():
    whole = written([b"one", b"two"])
    torn = whole[: len(written([b"one"])) + 5] + bytes(100)
    frames = reader(torn)
    assert frames.next_payload() == b"one"
    with pytest.raises(FrameChanged, match="length of record 1") as changed:
        frames.next_payload()
    assert (changed.value.is_tail, changed.value.can_go_on) == (True, False)


def test_what_is_too_long_is_refused_before_it_is_read():
    content = written([b"x" * (LIMIT + 1)])
    with pytest.raises(FrameChanged, match=f"has {LIMIT + 1} bytes, limit {LIMIT}"):
        reader(content).next_payload()


def test_a_frame_of_another_format_or_place_is_none():
    other = Proof(b"other").frame(0, b"one")
    moved = PROOF.frame(1, b"one")
    for content in (other, moved):
        with pytest.raises(FrameChanged):
            reader(content).next_payload()
    assert len(moved) == HEAD_BYTES + 3


@given(st.binary(max_size=60))
def test_any_bytes_are_fields_or_no_msgpack(payload):
    try:
        unpack_fields(payload)
    except NotARecord:
        return


def test_deep_and_foreign_msgpack_is_refused():
    for payload in (
        b"\x91" * 2000,
        msgpack.packb(msgpack.ExtType(5, b"x")),
        b"\xdb\xff\xff\xff\xff",
    ):
        with pytest.raises(NotARecord):
            unpack_fields(payload)
