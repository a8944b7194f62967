"""Images as the model wants them: those of the reference, bit by bit."""

import numpy as np
import pytest
from PIL import Image
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

from lanehost.images.decode import decode_image
from lanehost.images.processor import NotUsable, Resample, read_processor
from tests.support import image_files as files

FIELDS = {
    "do_convert_rgb": None,
    "do_normalize": True,
    "do_pan_and_scan": None,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_processor_type": "Gemma3ImageProcessor",
    "image_seq_length": 256,
    "image_std": [0.5, 0.5, 0.5],
    "processor_class": "Gemma3Processor",
    "resample": 2,
    "rescale_factor": 0.00392156862745098,
    "size": {"height": 56, "width": 56},
}
SIZES = [(1, 1), (56, 56), (57, 56), (3, 400), (640, 480), (119, 121)]


def reference(image: Image.Image, **changes: object) -> np.ndarray:
    """What the reference's processor makes of a picture, before its arithmetic."""
    # Its Gemma3Processor asks for RGB where the folder says null.
    asked = {"do_convert_rgb": True, "do_rescale": False, "do_normalize": False}
    fields = {**FIELDS, **asked, **changes}
    made = Gemma3ImageProcessorPil(**fields)(image, return_tensors="np")
    values = made["pixel_values"][0]
    assert np.array_equal(values, values.astype(np.uint8))
    return values.astype(np.uint8).transpose(1, 2, 0)


def pixels(prepared) -> np.ndarray:
    values = np.frombuffer(prepared.pixels, np.uint8)
    return values.reshape(prepared.height, prepared.width, 3)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("resample", Resample)
def test_resized_pixels_are_those_of_the_reference(size, resample):
    image = files.picture(*size)
    processor = read_processor({**FIELDS, "resample": resample.value})
    prepared = processor.prepare(image)
    assert np.array_equal(pixels(prepared), reference(image, resample=resample.value))


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "1"])
def test_pixels_of_other_modes_are_those_of_the_reference(mode):
    image = files.picture(100, 70).convert("L" if mode == "1" else "RGB").convert(mode)
    if mode in ("LA", "RGBA"):
        image.putalpha(files.picture(100, 70, mode="L"))
    decoded = decode_image(files.encoded(image, "PNG"), 1, files.LIMITS)
    assert np.array_equal(pixels(read_processor(FIELDS).prepare(decoded)), reference(image))


def test_a_picture_that_is_not_square_fills_the_square():
    prepared = read_processor({**FIELDS, "size": {"height": 20, "width": 30}}).prepare(
        files.picture(10, 300)
    )
    assert (prepared.width, prepared.height, len(prepared.pixels)) == (30, 20, 1800)


def test_equal_pictures_have_equal_digests_and_others_have_others():
    processor = read_processor(FIELDS)
    digests = [processor.prepare(files.picture(seed=seed)).digest for seed in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]
    assert len(digests[0]) == 32


@pytest.mark.parametrize(
    "change",
    [
        {"image_mean": [0.4, 0.5, 0.5]},
        {"image_std": [0.5, 0.5, 0.4]},
        {"resample": 3},
        {"size": {"height": 28, "width": 112}},
    ],
)
def test_the_same_pixels_under_other_settings_are_another_image(change):
    white = Image.new("RGB", (56, 56), "white")
    ours, other = (read_processor({**FIELDS, **more}).prepare(white) for more in ({}, change))
    assert ours.pixels == other.pixels
    assert ours.digest != other.digest


def test_size_and_resample_have_the_reference_s_default_where_it_has_one():
    fields = {name: FIELDS[name] for name in ("size", "image_mean", "image_std")}
    assert read_processor(fields) == read_processor(FIELDS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"do_pan_and_scan": True}, "do_pan_and_scan is True, only False is built"),
        ({"do_resize": False}, "do_resize is False, only True is built"),
        ({"do_rescale": 0}, "do_rescale is 0, only True is built"),
        ({"do_normalize": False}, "do_normalize is False"),
        ({"do_convert_rgb": "yes"}, "do_convert_rgb is 'yes'"),
        ({"do_center_crop": True}, "do_center_crop is True"),
        ({"do_pad": True}, "do_pad is True"),
        ({"rescale_factor": 0.5}, "rescale_factor is 0.5, only 1/255"),
        ({"rescale_factor": None}, "rescale_factor is None"),
        ({"size": {"shortest_edge": 224}}, "only one width and height"),
        ({"size": {"height": 8, "width": 8, "longest_edge": 9}}, "only one width and height"),
        ({"size": 224}, "size is 224"),
        ({"size": {"height": 0, "width": 8}}, "size is 8 x 0, allowed is 1 to 2048"),
        ({"size": {"height": 8, "width": 4096}}, "size is 4096 x 8, allowed is 1 to 2048"),
        ({"size": {"height": True, "width": 8}}, "only one width and height"),
        ({"resample": 0}, "resample is 0, built are 1 (lanczos), 2 (bilinear), 3 (bicubic)"),
        ({"resample": True}, "resample is True"),
        ({"image_mean": None}, "image_mean is None"),
        ({"image_mean": [0.5, 0.5]}, r"image_mean is [0.5, 0.5], three numbers"),
        ({"image_std": [0.5, 0.5, 0]}, "image_std is"),
        ({"image_std": [0.5, 0.5, float("nan")]}, "image_std is"),
        ({"image_std": [0.5, 0.5, "1"]}, "image_std is"),
    ],
)
def test_settings_that_are_not_built_are_refused_by_name(change, words):
    with pytest.raises(NotUsable) as refusal:
        read_processor({**FIELDS, **change})
    assert words in str(refusal.value)


def test_only_rgb_is_prepared():
    with pytest.raises(AssertionError, match="mode L"):
        read_processor(FIELDS).prepare(files.picture(mode="L"))
