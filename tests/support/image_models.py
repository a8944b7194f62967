"""A model of arithmetic that encodes images, and orders for it."""

import threading
from types import SimpleNamespace
from typing import Any

import torch

from ranks.models.passes import ImageFacts
from ranks.wire.image_messages import EncodeImage

FACTS = ImageFacts(num_tokens=2, token_id=9, width=2, height=1)


class ImageModel(SimpleNamespace):
    """Implements of `CausalLM` what an encoder asks; a row holds sums of pixels.

    `gate` may be closed: then an image that has begun waits for it. `fails` maps the first value
    of an image's pixels to what is raised.
    """

    def __init__(self, facts: ImageFacts | None = FACTS) -> None:
        super().__init__(images=facts, device=torch.device("cpu"), dtype=torch.float32)
        self.gate, self.has_begun = threading.Event(), threading.Event()
        self.gate.set()
        self.fails: dict[int, BaseException] = {}
        self.encoded: list[int] = []
        self.num_threads = self.num_rows = 0
        self.spoils: set[int] = set()

    def encode_image(self, pixels: torch.Tensor) -> torch.Tensor:
        assert (pixels.shape, pixels.dtype) == ((FACTS.height, FACTS.width, 3), torch.uint8)
        assert torch.is_inference_mode_enabled()
        first = int(pixels[0, 0, 0])
        self.encoded.append(first)
        self.num_threads = torch.get_num_threads()
        self.has_begun.set()
        assert self.gate.wait(10)
        if first in self.fails:
            raise self.fails[first]
        rows = pixels.float().sum(dim=(0, 1)).expand(self.num_rows or FACTS.num_tokens, 3)
        return rows * float("nan") if first in self.spoils else rows


def image(image_id: int, first: int | None = None, **changes: Any) -> EncodeImage:
    """An image of two pixels; its first value is its number unless told otherwise."""
    value = image_id if first is None else first
    usual = {
        "image_id": image_id,
        "digest": "00" * 32,
        "width": FACTS.width,
        "height": FACTS.height,
        "pixels": bytes((value, 1, 2, 3, 4, 5)),
    }
    return EncodeImage(**(usual | changes))
