"""From the bytes of a file to a picture, or a refusal."""

import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from lanehost.errors import InvalidRequest
from lanehost.images.decode import check_image, decode_image
from lanehost.images.limits import ImageLimits
from tests.support import image_files as files

LIMITS = files.LIMITS
GOOD = {
    "jpeg": files.jpeg(),
    "jpeg, grey": files.jpeg(mode="L"),
    "jpeg, cmyk": files.jpeg(mode="CMYK"),
    "jpeg, progressive": files.jpeg(progressive=True),
    "png": files.png(),
    "png, palette": files.png(mode="P"),
    "png, alpha": files.png(mode="RGBA"),
    "png, grey of 16 bits": files.grey_16([0, 1, 65_535]),
    "webp": files.webp(),
    "webp, lossy": files.webp(lossless=False),
    "webp, alpha": files.webp(mode="RGBA"),
}


def decoded(data: bytes) -> np.ndarray:
    return np.asarray(decode_image(data, 1, LIMITS))


@pytest.mark.parametrize("name", GOOD)
def test_every_kind_of_picture_is_decoded_to_rgb(name):
    image = decode_image(GOOD[name], 1, LIMITS)
    assert image.mode == "RGB"
    assert image.size in ((24, 16), (3, 1))


@pytest.mark.parametrize("name", files.HOSTILE)
def test_a_hostile_file_is_refused_by_number_and_in_words(name):
    make, words = files.HOSTILE[name]
    data = make()
    cpu = time.thread_time()
    with pytest.raises(InvalidRequest) as refusal:
        decode_image(data, 3, LIMITS)
    assert time.thread_time() - cpu < 2.0
    assert refusal.value.field == "images[3]"
    assert words in refusal.value.reason


@pytest.mark.parametrize("name", ["png bomb", "webp bomb", "jpeg bomb"])
def test_a_bomb_is_refused_before_anything_of_it_is_unpacked(name):
    data = files.HOSTILE[name][0]()
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match="pixels, limit"):
            decode_image(data, 1, LIMITS)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_limits_themselves_are_allowed():
    data = files.png(40, 30)
    exact = ImageLimits(max_image_bytes=len(data), max_image_pixels=1200, max_images=1)
    assert decode_image(data, 1, exact).size == (40, 30)
    for less in (
        ImageLimits(max_image_bytes=len(data) - 1, max_image_pixels=1200, max_images=1),
        ImageLimits(max_image_bytes=len(data), max_image_pixels=1199, max_images=1),
    ):
        with pytest.raises(InvalidRequest, match="limit"):
            check_image(data, 1, less)


@pytest.mark.parametrize("size", [(1, 1), (1, 900), (900, 1), (1024, 1024)])
@pytest.mark.parametrize("make", [files.jpeg, files.png, files.webp])
def test_one_pixel_and_the_most_pixels_are_taken(make, size):
    assert decode_image(make(*size), 1, LIMITS).size == size


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_upright_as_its_exif_says(kind, orientation, tmp_path):
    path = tmp_path / "turned"
    path.write_bytes(files.turned(kind, orientation))
    with Image.open(path) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    assert np.array_equal(decoded(path.read_bytes()), np.asarray(upright))


def test_what_is_transparent_is_laid_on_white_in_every_strip():
    image = files.picture(5, 700)
    image.putalpha(Image.new("L", image.size, 0))
    assert (decoded(files.encoded(image, "PNG")) == 255).all()


def test_what_is_half_transparent_is_half_white():
    image = Image.new("RGBA", (2, 2), (0, 0, 0, 128))
    assert (decoded(files.encoded(image, "PNG")) == 127).all()


def test_a_transparent_colour_of_a_palette_is_white():
    image = Image.new("P", (4, 1))
    image.putpalette([255, 0, 0, 0, 255, 0])
    image.putdata([0, 1, 0, 1])
    seen = decoded(files.encoded(image, "PNG", transparency=0))
    assert seen.tolist() == [[[255, 255, 255], [0, 255, 0]] * 2]


def test_grey_of_16_bits_keeps_the_upper_eight():
    seen = decoded(files.grey_16([0, 255, 256, 0x1234, 65_535]))
    assert seen[0, :, 0].tolist() == [0, 0, 1, 0x12, 255]


def test_a_transparent_grey_of_16_bits_is_white():
    seen = decoded(files.grey_16([0x1200, 0x1234], clear=0x1234))
    assert seen[0, :, 0].tolist() == [0x12, 255]


def test_cmyk_is_near_the_colours_it_was_made_from():
    away = np.abs(decoded(files.jpeg(mode="CMYK")).astype(int) - np.asarray(files.picture()))
    assert away.mean() < 8


def test_a_file_of_two_pictures_is_its_first():
    pair = [files.picture(seed=seed) for seed in (0, 1)]
    data = files.encoded(pair[0], "MPO", save_all=True, append_images=pair[1:], quality=95)
    assert np.abs(decoded(data).astype(int) - decoded(files.jpeg())).max() == 0


def test_a_png_whose_pixels_end_early_by_their_own_word_is_black_from_there():
    seen = decoded(files.raw_png(4, 4, rows=b"\0" + bytes([255] * 12)))
    assert seen[0].min() == 255
    assert seen[1:].max() == 0


def decoded_or_refused(data: bytes) -> Image.Image | InvalidRequest:
    try:
        return decode_image(data, 2, LIMITS)
    except InvalidRequest as refusal:
        return refusal


def _mutated(draw):
    data = bytearray(GOOD[draw(st.sampled_from(sorted(GOOD)))])
    for _ in range(draw(st.integers(1, 6))):
        where = draw(st.integers(0, len(data) - 1))
        match draw(st.sampled_from(["flip", "cut", "insert", "copy"])):
            case "flip":
                data[where] = draw(st.integers(0, 255))
            case "cut":
                del data[where : where + draw(st.integers(1, 64))]
            case "insert":
                data[where:where] = draw(st.binary(min_size=1, max_size=32))
            case _:
                data[where:where] = data[: draw(st.integers(1, 64))]
        if not data:
            break
    return bytes(data)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.composite(_mutated)())
def test_whatever_becomes_of_a_file_it_is_a_picture_or_a_refusal(data):
    cpu = time.thread_time()
    outcome = decoded_or_refused(data)
    if isinstance(outcome, InvalidRequest):
        assert outcome.field == "images[2]"
        assert len(outcome.reason) < 400
    else:
        assert outcome.mode == "RGB"
        assert outcome.width * outcome.height <= LIMITS.max_image_pixels
    assert time.thread_time() - cpu < 5.0
