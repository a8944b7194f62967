"""The laws of lanehost.text.gguf_fields."""

import contextlib
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lanehost.errors import StartupFailed
from lanehost.text.gguf_fields import GgufFields
from tests.support.text_models import write_gguf


@pytest.fixture
def fields(tmp_path):
    path = write_gguf(
        tmp_path / "m.gguf",
        {"a.word": "x", "a.count": 3, "a.flag": False, "a.words": ["b", "c"], "a.scores": [0.5]},
        rows=7,
    )
    return GgufFields(path)


def test_fields_are_read_by_name_and_kind(fields):
    assert fields.need("a.word", str) == "x"
    assert fields.need("a.count", int) == fields.need_count("a.count") == 3
    assert fields.get("a.flag", bool) is False
    assert fields.need_list("a.words", str) == ["b", "c"]
    assert fields.need_list("a.scores", float) == [0.5]
    assert fields.get("a.absent", int) is None


def test_the_rows_of_a_tensor_are_told(fields):
    assert (fields.num_rows("token_embd.weight"), fields.num_rows("other")) == (7, None)


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (lambda fields: fields.need("a.gone", int), "field a.gone is absent"),
        (lambda fields: fields.need_list("a.gone", int), "field a.gone is absent"),
        (lambda fields: fields.get("a.word", int), "field a.word is str, not int"),
        (lambda fields: fields.get("a.flag", int), "field a.flag is bool, not int"),
        (lambda fields: fields.need_list("a.words", int), "field a.words is not a list of int"),
        (lambda fields: fields.need_list("a.word", str), "field a.word is not a list of str"),
    ],
)
def test_a_wrong_field_is_named_with_the_file_and_what_to_do(fields, read, says):
    with pytest.raises(StartupFailed, match=rf"m\.gguf: {says}; convert the model again"):
        read(fields)


@pytest.mark.parametrize("content", [b"", b"GG", b"not a model file at all", b"GGUF\x03\0\0\0"])
def test_a_file_that_is_no_gguf_is_named_with_what_to_do(tmp_path, content):
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)

    with pytest.raises(StartupFailed, match=r"bad\.gguf cannot be read as a GGUF file"):
        GgufFields(path)


def test_a_file_cut_off_anywhere_is_refused(tmp_path, fields):
    whole = fields.path.read_bytes()
    path = tmp_path / "cut.gguf"
    padding = 16  # behind the last tensor: 7 rows of 4 float32 in steps of 32 bytes
    for length in range(0, len(whole) - padding, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(StartupFailed, match=r"cut\.gguf cannot be read"):
            GgufFields(path)


def test_text_that_is_no_utf8_is_named_by_its_field(tmp_path, fields):
    path = tmp_path / "latin.gguf"
    path.write_bytes(
        fields.path.read_bytes().replace(b"\x01\0\0\0\0\0\0\0x", b"\x01\0\0\0\0\0\0\0\xe9")
    )

    with pytest.raises(StartupFailed, match=r"field a\.word cannot be read"):
        GgufFields(path).need("a.word", str)


def claiming(array):
    """A file of one field, whose value is an array that claims what is not there."""
    name = struct.pack("<Q", 1) + b"x"
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + name + struct.pack("<I", 9) + array


@pytest.mark.timeout(5)
@pytest.mark.parametrize(
    "array",
    [
        struct.pack("<IQ", 0, 1 << 60),
        struct.pack("<IQ", 8, 1 << 60),
        struct.pack("<IQ", 9, 1 << 60),
        struct.pack("<IQ", 9, 1) * 5000 + struct.pack("<IQ", 0, 0),
    ],
)
def test_a_small_file_that_claims_a_huge_array_is_refused_at_once(tmp_path, array):
    path = tmp_path / "bad.gguf"
    path.write_bytes(claiming(array))

    with pytest.raises(StartupFailed, match=r"bad\.gguf cannot be read as a GGUF file"):
        GgufFields(path)


@given(at=st.integers(0, 300), noise=st.binary(min_size=1, max_size=12))
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_damaged_file_is_read_or_refused_field_by_field(tmp_path, fields, at, noise):
    whole = fields.path.read_bytes()
    path = tmp_path / "noise.gguf"
    path.write_bytes(whole[:at] + noise + whole[at + len(noise) :])

    with contextlib.suppress(StartupFailed):
        damaged = GgufFields(path)
        for key, kind in (("a.word", str), ("a.count", int), ("a.flag", bool)):
            with contextlib.suppress(StartupFailed):
                damaged.need(key, kind)
        for key, kind in (("a.words", str), ("a.scores", float)):
            with contextlib.suppress(StartupFailed):
                damaged.need_list(key, kind)


@given(content=st.binary(max_size=200))
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_noise_behind_the_magic_is_refused(tmp_path, content):
    path = tmp_path / "noise.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0" + content)

    with contextlib.suppress(StartupFailed):
        assert GgufFields(path).num_rows("token_embd.weight") is None
