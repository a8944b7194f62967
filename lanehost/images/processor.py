"""How a model wants its images: read from its folder, done to pixels, told by a digest.

The reference's processor makes an image RGB, resizes it to one size and then does arithmetic
on the values. The first two are done here, with the same library and the same rule, so that
the uint8 pixels are those of the reference; the arithmetic is the ranks', on the same numbers
of the same file. What a folder asks for beyond that is not built, and is refused by name.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import Any

from PIL import Image

from lanehost.job import PreparedImage

PREPROCESSOR_CONFIG = "preprocessor_config.json"
PROCESSOR_CONFIG = "processor_config.json"
MAX_SIDE = 2048
_VERSION = b"lanehost image 1"
_RESCALE = 1 / 255
_MOST = 10.0


class Resample(Enum):
    """How pixels are made of those of another size, by the reference's number for it."""

    LANCZOS = 1
    BILINEAR = 2
    BICUBIC = 3


class NotUsable(Exception):
    """The model's settings cannot be used; the message names the field and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageProcessor:
    """Settings of a model's image processor; `mean` and `std` are of R, G and B, after / 255."""

    width: int
    height: int
    resample: Resample
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @property
    def num_bytes(self) -> int:
        """The bytes of the pixels of one image."""
        return self.width * self.height * 3

    @property
    def digest(self) -> bytes:
        """Tell the settings from all others that give other rows for the same picture."""
        words = (self.width, self.height, self.resample.value, *self.mean, *self.std)
        return blake2b(_VERSION + repr(words).encode(), digest_size=32).digest()

    def prepare(self, image: Image.Image) -> PreparedImage:
        """Resize an RGB image, and name what comes out."""
        assert image.mode == "RGB", f"mode {image.mode}"
        # Also where the size is the same: the reference's own rule, which then changes nothing.
        small = image.resize((self.width, self.height), resample=_FILTERS[self.resample])
        pixels = small.tobytes()
        whole = blake2b(self.digest, digest_size=32)
        whole.update(pixels)
        return PreparedImage(
            digest=whole.digest(), width=self.width, height=self.height, pixels=pixels
        )


_FILTERS = {
    Resample.LANCZOS: Image.Resampling.LANCZOS,
    Resample.BILINEAR: Image.Resampling.BILINEAR,
    Resample.BICUBIC: Image.Resampling.BICUBIC,
}
# Field → the values that are built; what is absent or null is the reference's own default.
_BUILT: Mapping[str, tuple[object, ...]] = {
    "do_resize": (True,),
    "do_rescale": (True,),
    "do_normalize": (True,),
    "do_convert_rgb": (True,),
    "do_pan_and_scan": (False,),
    "do_center_crop": (False,),
    "do_pad": (False,),
}


def read_processor(fields: Mapping[str, Any]) -> ImageProcessor:
    """Read the settings from the fields of preprocessor_config.json.

    Raises:
        NotUsable: a field is wrong, or asks for what is not built.
    """
    for name, allowed in _BUILT.items():
        value = fields.get(name)
        if value is not None and not any(value is one for one in allowed):
            raise NotUsable(f"{name} is {value!r}, only {allowed[0]!r} is built")
    factor = fields.get("rescale_factor", _RESCALE)
    if type(factor) not in (int, float) or not math.isclose(factor, _RESCALE, rel_tol=1e-6):
        raise NotUsable(f"rescale_factor is {factor!r}, only 1/255 is built")
    width, height = _read_size(fields.get("size"))
    return ImageProcessor(
        width=width,
        height=height,
        resample=_read_resample(fields.get("resample")),
        mean=_read_three(fields, "image_mean", low=-10.0),
        std=_read_three(fields, "image_std", low=1e-3),
    )


def _read_size(size: Any) -> tuple[int, int]:
    sides = (size.get("width"), size.get("height")) if isinstance(size, Mapping) else (None, None)
    width, height = sides
    if type(width) is not int or type(height) is not int or set(size) - {"width", "height"}:
        raise NotUsable(f"size is {size!r}, only one width and height for all images is built")
    if not 1 <= min(width, height) <= max(width, height) <= MAX_SIDE:
        raise NotUsable(f"size is {width} x {height}, allowed is 1 to {MAX_SIDE}")
    return width, height


def _read_resample(number: Any) -> Resample:
    if number is None:
        return Resample.BILINEAR
    for one in Resample:
        if type(number) is int and number == one.value:
            return one
    allowed = ", ".join(f"{one.value} ({one.name.lower()})" for one in Resample)
    raise NotUsable(f"resample is {number!r}, built are {allowed}")


def _read_three(fields: Mapping[str, Any], name: str, *, low: float) -> tuple[float, float, float]:
    values = fields.get(name)
    match values:
        case [red, green, blue] if all(_is_between(one, low, _MOST) for one in values):
            return float(red), float(green), float(blue)
        case _:
            wanted = f"three numbers from {low:g} to {_MOST:g} are needed"
            raise NotUsable(f"{name} is {values!r}, {wanted}")


def _is_between(value: Any, low: float, high: float) -> bool:
    return type(value) in (int, float) and low <= value <= high
