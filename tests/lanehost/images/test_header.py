"""What a file says of itself."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from lanehost.images.decode import decode_image
from lanehost.images.header import ImageKind, Truncated, WrongHeader, kind_of, read_header
from tests.support import image_files as files

MAKERS = {"JPEG": files.jpeg, "PNG": files.png, "WEBP": files.webp}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("size", [(1, 1), (24, 16), (300, 7)])
def test_kind_and_size_are_read_from_the_bytes(kind, size):
    header = read_header(MAKERS[kind](*size))
    assert (header.kind, header.width, header.height) == (ImageKind[kind], *size)
    assert (header.is_animated, header.orientation, header.num_scans) == (False, 1, 1)


@pytest.mark.parametrize("options", [{"lossless": True}, {"lossless": False}])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_every_form_of_webp_says_its_size(options, mode):
    header = read_header(files.webp(31, 17, mode=mode, **options))
    assert (header.width, header.height) == (31, 17)


@pytest.mark.parametrize("options", [{"progressive": True}, {"subsampling": 2}, {"dpi": (9, 9)}])
def test_every_form_of_jpeg_says_its_size(options):
    header = read_header(files.jpeg(31, 17, **options))
    assert (header.width, header.height) == (31, 17)
    assert (header.num_scans > 1) == ("progressive" in options)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("big_endian", [False, True])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_is_that_which_pillow_reads(kind, big_endian, orientation, tmp_path):
    path = tmp_path / "turned"
    path.write_bytes(files.turned(kind, orientation, big_endian=big_endian))
    assert read_header(path.read_bytes()).orientation == orientation
    with Image.open(path) as image:
        is_on_its_side = ImageOps.exif_transpose(image).size == image.size[::-1]
    assert is_on_its_side == (orientation > 4)


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"II*\0",
        b"II*\0\xff\xff\xff\xff",
        b"II*\0\x08\0\0\0\xff\xff" + bytes(30),
        b"XX*\0" + bytes(40),
        files.exif(0)[6:],
        files.exif(9)[6:],
    ],
)
def test_an_orientation_that_cannot_be_read_turns_nothing(record):
    data = files.raw_png(1, 1, rows=bytes(4), extra=files.chunk(b"eXIf", record))
    assert read_header(data).orientation == 1


def test_bytes_of_no_kind_have_no_header():
    assert kind_of(b"GIF89a") is None
    assert read_header(b"RIFF\0\0\0\0WAVE") is None


def test_a_thumbnail_in_a_jpeg_is_none_of_its_pixels():
    data = files.jpeg(40, 30)
    inner = files.jpeg(8, 8, progressive=True)
    segment = b"\xff\xe2" + struct.pack(">H", 2 + len(inner)) + inner
    header = read_header(data[:2] + segment + data[2:])
    assert (header.width, header.height, header.num_scans) == (40, 30, 1)


def test_an_end_that_is_missing_is_told_from_what_is_wrong():
    for make in MAKERS.values():
        with pytest.raises(Truncated, match="is truncated"):
            read_header(make()[:-9])
    with pytest.raises(WrongHeader, match="segment of 1 bytes"):
        read_header(b"\xff\xd8\xff\xfe\0\1zz")


def test_bytes_between_the_segments_of_a_jpeg_are_skipped_as_decoders_do():
    data = files.jpeg(40, 30)
    begin = data.index(b"\xff\xdb")
    spoiled = data[:begin] + bytes(3) + data[begin:]
    header = read_header(spoiled)
    assert (header.width, header.height, header.num_scans) == (40, 30, 1)
    assert decode_image(spoiled, 1, files.LIMITS).size == (40, 30)


@pytest.mark.parametrize(
    "data",
    [
        files.png()[:33] + files.chunk(b"tEXt", b"") * 70_000 + files.png()[33:],
        files.jpeg()[:2] + b"\xff\xfe\0\2" * 70_000 + files.jpeg()[2:],
        files.jpeg()[:2] + b"\xff\x01" * 70_000 + files.jpeg()[2:],
        b"RIFF" + struct.pack("<I", 4 + 8 * 70_000) + b"WEBP" + bytes(8) * 70_000,
    ],
)
def test_a_file_of_more_parts_than_any_has_is_not_read_to_its_end(data):
    with pytest.raises(WrongHeader, match=r"more than 65536 parts|begin with its size"):
        read_header(data)


def test_fill_before_a_marker_is_skipped_at_once_and_bounded():
    data = files.jpeg(40, 30)
    assert read_header(data[:2] + b"\xff" * 65_536 + data[2:]).width == 40
    # The data of scans is none of it.
    assert read_header(data[:-2] + bytes(200_000) + data[-2:]).width == 40
    many = "more than 65536 bytes between its segments"
    for junk in (b"\xff" * 65_537, b"\0" * 65_537, b"\xff\xd0" * 40_000):
        with pytest.raises(WrongHeader, match=many):
            read_header(data[:2] + b"\xff\xfe\0\2" + junk + data[2:])
    with pytest.raises(WrongHeader, match=many):
        read_header(data[:2] + (b"\xff" * 40_000 + b"\xff\xfe\0\2") * 2 + data[2:])
    with pytest.raises(Truncated):
        read_header(data[:2] + b"\xff" * 500)
    with pytest.raises(Truncated):
        read_header(data[:2] + b"\xff\xfe")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xff\xd8\xff\xc0\0\4\1\2", "whose size cannot be read"),
        (files.webp()[:12] + b"VP8 \0\0\0\0" + files.webp()[20:], "begin with its size"),
    ],
)
def test_a_size_that_is_cut_off_is_none(data, said):
    with pytest.raises(WrongHeader, match=said):
        read_header(data)


def test_an_exif_record_of_other_things_turns_nothing():
    other = b"II*\0\x08\0\0\0\1\0" + struct.pack("<HHIHH", 0x0100, 3, 1, 6, 0)
    data = files.raw_png(1, 1, rows=bytes(4), extra=files.chunk(b"eXIf", other))
    assert read_header(data).orientation == 1


@given(
    start=st.sampled_from([make() for make in MAKERS.values()]),
    cut=st.integers(0, 80),
    tail=st.binary(max_size=200),
)
def test_whatever_comes_behind_a_beginning_is_read_or_refused(start, cut, tail):
    try:
        header = read_header(start[:cut] + tail)
    except WrongHeader:
        return
    assert header is None or (header.width > 0 and header.height > 0)
