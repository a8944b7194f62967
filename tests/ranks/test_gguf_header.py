import contextlib
import struct

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st

from ranks.errors import BadCheckpoint
from ranks.gguf_header import map_gguf, read_gguf_header, read_gguf_value, shortened
from tests.support.tiny_checkpoints import VOCAB_SIZE, write_gguf

HUGE = 2**63 - 1


@pytest.fixture(scope="module")
def gguf_bytes(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path, GGMLQuantizationType.Q4_0)
    return path.read_bytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


def read(folder, content):
    path = folder / "some.gguf"
    return read_gguf_header(path, np.frombuffer(content, dtype=np.uint8))


def read_value(folder, content, field):
    path, data = folder / "some.gguf", np.frombuffer(content, dtype=np.uint8)
    return read_gguf_value(path, data, read_gguf_header(path, data).value_starts[field])


def name(text):
    return struct.pack("<Q", len(text)) + text.encode()


def header(*, version=3, tensors=0, fields=0, magic=b"GGUF"):
    return magic + struct.pack("<IQQ", version, tensors, fields)


def tensor(label="t", shape=(32, 2), kind=0, offset=0):
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return name(label) + dimensions + struct.pack("<IQ", kind, offset)


def test_fields_and_tensors_are_read(folder, gguf_bytes):
    found = read(folder, gguf_bytes)
    assert found.fields["general.architecture"] == "llama"
    assert found.fields["llama.block_count"] == 2
    assert found.fields["llama.rope.freq_base"] == 10_000.0
    info = found.tensors["blk.1.ffn_down.weight"]
    assert info.shape == (96, 224)
    assert info.num_bytes == 96 * 224 // 32 * 18
    assert found.tensors["token_embd.weight"].shape == (VOCAB_SIZE, 96)


HOSTILE = {
    "dimension of zero": (
        header(tensors=1) + tensor(shape=(0, 2)), r"'t' has shape \(2, 0\): a dimension is 0"),
    "empty": (b"", "not a GGUF file"),
    "magic": (header(magic=b"GGML"), "not a GGUF file.*GGML"),
    "version": (header(version=99), "version is 99"),
    "big endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version"),
    "cut counts": (header()[:10], "wants 8 bytes"),
    "tensors": (header(tensors=HUGE), f"number of tensors is {HUGE}"),
    "fields": (header(fields=HUGE), f"number of fields is {HUGE}"),
    "fields that are not there": (header(fields=60_000), "wants 8 bytes"),
    "field name": (header(fields=1) + struct.pack("<Q", HUGE), f"field name has {HUGE}"),
    "name not UTF-8": (header(fields=1) + struct.pack("<Q", 1) + b"\xff", "not UTF-8"),
    "field type": (header(fields=1) + name("a") + struct.pack("<I", 77), "type 77"),
    "string": (header(fields=1) + name("a") + struct.pack("<IQ", 8, HUGE), f"wants {HUGE}"),
    "array of numbers": (
        header(fields=1) + name("a") + struct.pack("<IIQ", 9, 4, HUGE), f"wants {HUGE * 4}"),
    "array of bytes": (
        header(fields=1) + name("a") + struct.pack("<IIQ", 9, 0, HUGE), f"wants {HUGE}"),
    "array of strings": (
        header(fields=1) + name("a") + struct.pack("<IIQ", 9, 8, HUGE) + name("x") * 3,
        f"wants {8 * HUGE} bytes"),
    "array of strings cut short": (
        header(fields=1) + name("a") + struct.pack("<IIQ", 9, 8, 4) + name("x" * 9) * 3,
        "a text begins at byte 100, the file ends at 100"),
    "array with a string of huge length": (
        header(fields=1) + name("a") + struct.pack("<IIQQ", 9, 8, 1, HUGE), f"wants {HUGE + 8}"),
    "array of arrays": (
        header(fields=1) + name("a") + struct.pack("<IIQ", 9, 9, 1), "values of type 9"),
    "field twice": (
        header(fields=2) + (name("a") + struct.pack("<IB", 0, 1)) * 2, "'a' is there twice"),
    "alignment": (
        header(fields=1) + name("general.alignment") + struct.pack("<II", 4, 3), "alignment is 3"),
    "no dimensions": (header(tensors=1) + tensor(shape=()), "has 0 dimensions"),
    "dimensions": (header(tensors=1) + tensor(shape=(1,) * 5), "has 5 dimensions"),
    "tensor type": (header(tensors=1) + tensor(kind=1234), "unknown type 1234"),
    "group": (header(tensors=1) + tensor(shape=(33, 2), kind=2), "33 values in groups of 32"),
    "length": (header(tensors=1) + tensor(shape=(HUGE, HUGE)), "ends at byte"),
    "offset": (header(tensors=1) + tensor(offset=2**63) + bytes(999), "ends at byte"),
    "tensor beside its place": (
        header(tensors=1) + tensor(offset=16) + bytes(999), "'t' has offset 16, no multiple of 32"),
    "tensors that overlap": (
        header(tensors=2) + tensor("a") + tensor("b", offset=224) + bytes(999),
        "'b' begins at byte 352, 'a' ends at 384"),
    "alignment of true": (
        header(fields=1) + name("general.alignment") + struct.pack("<IB", 7, 1),
        "alignment is True"),
    "tensor twice": (header(tensors=2) + tensor() * 2 + bytes(999), "'t' is there twice"),
}  # fmt: skip


@pytest.mark.timeout(5)
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_header_is_refused_with_what_is_wrong(folder, case):
    content, message = HOSTILE[case]
    with pytest.raises(BadCheckpoint, match=f"some.gguf: .*{message}"):
        read(folder, content)


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 0.999))
def test_a_file_cut_anywhere_is_refused(folder, gguf_bytes, share):
    with pytest.raises(BadCheckpoint):
        read(folder, gguf_bytes[: int(len(gguf_bytes) * share)])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 6000), st.binary(min_size=1, max_size=8))
def test_a_damaged_header_is_read_or_refused_but_never_crashes(folder, gguf_bytes, at, noise):
    content = gguf_bytes[:at] + noise + gguf_bytes[at + len(noise) :]
    with contextlib.suppress(BadCheckpoint):
        read(folder, content)


def test_long_arrays_are_walked_over_and_not_kept(folder):
    long = struct.pack("<IIQ", 9, 4, 5000) + bytes(20_000)
    short = struct.pack("<IIQ3I", 9, 4, 3, 7, 8, 9)
    found = read(folder, header(fields=2) + name("long") + long + name("short") + short)
    assert found.fields == {"long": None, "short": (7, 8, 9)}


def test_a_value_is_read_whole_however_long_it_is(folder):
    words = struct.pack("<IIQ", 9, 8, 5000) + name("word") * 5000
    text = struct.pack("<I", 8) + name("x" * 70_000)
    flags = struct.pack("<IIQ3B", 9, 7, 3, 1, 0, 1)
    content = header(fields=3) + name("words") + words + name("text") + text + name("f") + flags

    assert read_value(folder, content, "words") == ["word"] * 5000
    assert read_value(folder, content, "text") == "x" * 70_000
    assert read_value(folder, content, "f") == [True, False, True]


def test_one_value_of_a_field_is_read_as_the_header_has_it(folder):
    content = header(fields=1) + name("a") + struct.pack("<Ii", 5, -7)
    assert read_value(folder, content, "a") == -7


def test_a_text_that_is_no_utf8_is_refused_when_it_is_read(folder):
    content = header(fields=1) + name("a") + struct.pack("<IQ", 8, 1) + b"\xff"
    with pytest.raises(BadCheckpoint, match=r"a text at offset .* is not UTF-8"):
        read_value(folder, content, "a")


def test_more_values_than_any_tokenizer_has_are_refused(folder):
    content = header(fields=1) + name("a") + struct.pack("<IIQ", 9, 0, 4_194_305) + bytes(4_194_305)
    with pytest.raises(BadCheckpoint, match="an array has 4194305 values, the limit is 4194304"):
        read_value(folder, content, "a")


def test_tensors_may_touch_but_not_overlap(folder):
    content = header(tensors=2) + tensor("b", offset=256) + tensor("a")
    found = read(folder, content + bytes(-len(content) % 32 + 512))
    assert found.tensors["b"].offset == found.tensors["a"].offset + 256


def test_of_a_long_message_both_ends_are_kept():
    assert shortened("short") == "short"
    long = shortened("begin" + "x" * 100_000 + "end")
    assert len(long) < 2_010
    assert long.startswith("begin")
    assert long.endswith("end")


@pytest.mark.parametrize("content", [None, b""])
def test_a_file_that_cannot_be_mapped_is_named(tmp_path, content):
    path = tmp_path / "some.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadCheckpoint, match=r"some\.gguf: cannot be read"):
        map_gguf(path)
