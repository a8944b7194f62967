"""A file is taken if its header is the very one that this rank would write, and no other."""

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from ranks.disk.file_format import (
    LENGTH_BYTES,
    MAX_HEADER_BYTES,
    FileMiss,
    lay_out,
    length_in,
)
from ranks.models.state import kv_state
from ranks.wire.file_messages import FileFault, FileHeader, FileName

HEADER = FileHeader(
    name=FileName(layout="1a" * 32, key="2b" * 32), num_tokens=32, tokens_digest="3c" * 32
)
STATE = kv_state(num_layers=2, num_kv_heads=3, head_dim=4, dtype=torch.float16)


def layout(header=HEADER, state=STATE, *, block_size=16, rank=0, world_size=2):
    return lay_out(header, state, block_size=block_size, rank=rank, world_size=world_size)


def fault_of(head, expected=None):
    with pytest.raises(FileMiss) as miss:
        (expected or layout()).checksum_in(head)
    return miss.value.fault


def test_the_header_is_one_of_safetensors_and_says_what_the_file_is():
    head = layout().head()
    said = json.loads(head[LENGTH_BYTES:])
    assert len(head) == LENGTH_BYTES + length_in(head)
    assert len(head) % 8 == 0
    assert said["__metadata__"]["num_tokens"] == "32"
    assert said["__metadata__"]["rank"] == "0"
    assert said["layers.0.values"] == {
        "dtype": "F16", "shape": [3, 2, 16, 4], "data_offsets": [768, 1536],
    }  # fmt: skip
    assert layout().num_bytes == len(head) + 4 * 3 * 32 * 4 * 2


@given(st.binary(min_size=16, max_size=16).map(bytes.hex))
def test_the_checksum_that_was_written_is_found(checksum):
    assert layout().checksum_in(layout().head(checksum)) == checksum


@pytest.mark.parametrize(
    ("other", "fault"),
    [
        (layout(replace(HEADER, name=replace(HEADER.name, key="ff" * 32))), FileFault.FOREIGN),
        (layout(replace(HEADER, name=replace(HEADER.name, layout="ff" * 32))), FileFault.FOREIGN),
        (layout(rank=1), FileFault.FOREIGN),
        (layout(world_size=1), FileFault.FOREIGN),
        (layout(replace(HEADER, num_tokens=48)), FileFault.TOKENS),
        (layout(replace(HEADER, tokens_digest="ff" * 32)), FileFault.TOKENS),
        (layout(block_size=32), FileFault.GEOMETRY),
        (layout(state=STATE[:-1]), FileFault.GEOMETRY),
        (layout(state=STATE[::-1]), FileFault.GEOMETRY),
        (
            layout(state=kv_state(num_layers=2, num_kv_heads=3, head_dim=4, dtype=torch.bfloat16)),
            FileFault.GEOMETRY,
        ),
        (
            layout(state=kv_state(num_layers=2, num_kv_heads=4, head_dim=3, dtype=torch.float16)),
            FileFault.GEOMETRY,
        ),
    ],
)
def test_a_file_of_anything_else_is_a_miss_that_says_how(other, fault):
    assert fault_of(other.head()) is fault


@pytest.mark.parametrize(
    ("version", "fault"),
    [
        ("0", FileFault.OLDER),
        ("2", FileFault.NEWER),
        ("10", FileFault.NEWER),
        ("9" * 10_000, FileFault.NEWER),
        ("", FileFault.FOREIGN),
        ("-1", FileFault.FOREIGN),
        ("²", FileFault.FOREIGN),
        (None, FileFault.FOREIGN),
        ([], FileFault.FOREIGN),
    ],
)
def test_another_version_is_older_or_newer(version, fault):
    said = json.loads(layout().header)
    said["__metadata__"]["version"] = version
    assert fault_of(bytes(LENGTH_BYTES) + json.dumps(said).encode()) is fault


@given(
    st.one_of(
        st.binary(max_size=300),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["__metadata__", "format", "version", "a"]), inner
                )
            ),
        ).map(lambda said: json.dumps(said).encode()),
    )
)
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
@example(b'{"a":' + b"9" * 100_000 + b"}")
@example(b'{"a":1e999999999}')
@example(b'{"__metadata__":{"format":"lanehost-prefix"}}')
@example(b'{"__metadata__":{"format":"lanehost-prefix","version":"1"}}')
@example(b"\xff\xfe\x00")
def test_whatever_a_header_holds_is_a_miss(text):
    fault_of(bytes(LENGTH_BYTES) + text)


@given(st.data())
def test_a_header_with_any_byte_changed_but_those_of_the_checksum_is_a_miss(data):
    ours = layout()
    head = bytearray(ours.head("ab" * 16))
    checksum_at = range(LENGTH_BYTES + ours.checksum_at, LENGTH_BYTES + ours.checksum_at + 32)
    at = data.draw(st.integers(0, len(head) - 1).filter(lambda at: at not in checksum_at))
    head[at] ^= data.draw(st.integers(1, 255))
    fault_of(bytes(head))


@given(st.integers(0, 3000))
def test_a_header_cut_short_is_a_miss(end):
    head = layout().head()
    fault_of(head[: end % len(head)])


def test_a_length_is_bounded_before_anything_is_read():
    assert length_in(MAX_HEADER_BYTES.to_bytes(8, "little")) == MAX_HEADER_BYTES
    for prefix, fault in [
        ((MAX_HEADER_BYTES + 1).to_bytes(8, "little"), FileFault.FOREIGN),
        (b"\xff" * 8, FileFault.FOREIGN),
        (b"\x08", FileFault.TORN),
        (b"", FileFault.TORN),
    ]:
        with pytest.raises(FileMiss) as miss:
            length_in(prefix)
        assert miss.value.fault is fault


def test_a_file_has_one_size():
    ours = layout()
    ours.check_size(ours.num_bytes)
    for more, fault in ((-1, FileFault.TORN), (1, FileFault.FOREIGN)):
        with pytest.raises(FileMiss) as miss:
            ours.check_size(ours.num_bytes + more)
        assert miss.value.fault is fault


def test_an_entry_that_is_no_whole_number_of_blocks_has_no_file():
    with pytest.raises(FileMiss, match="33 tokens are no blocks of 16") as miss:
        layout(replace(HEADER, num_tokens=33))
    assert miss.value.fault is FileFault.NO_ROOM
