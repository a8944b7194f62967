"""From the pixels of an image to its rows and their digest, on the thread that calls.

Laws: the rows depend on the pixels alone: not on what else the rank computes, on the number of
ranks, nor on that of threads. What goes wrong with one image is the fault of that image.

On a CPU it takes one thread of computation: more would be taken from the steps beside it. Each
thread has that number for itself. On CUDA it has a stream of its own.
"""

import contextlib
import struct
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import blake2b

import torch

from ranks.models.registry import CausalLM
from ranks.wire.image_messages import EncodeImage, ImageFault

NUM_THREADS = 1
_DIGEST_BYTES = 16


class BadImage(Exception):
    """An image cannot be encoded, and why; caught where the image is answered for."""

    def __init__(self, fault: ImageFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedImage:
    """Rows [tokens, hidden] on the model's device, and the digest of their bits."""

    rows: torch.Tensor
    digest: bytes


class Encoder:
    """Encodes for one model, from one thread."""

    def __init__(self, model: CausalLM) -> None:
        """Take a model that has loaded; it may take no images."""
        self._model = model
        self._stream = torch.cuda.Stream(model.device) if model.device.type == "cuda" else None

    def encode(self, work: EncodeImage) -> EncodedImage:
        """Encode one image.

        Raises:
            BadImage: It cannot be done.
        """
        facts = self._model.images
        if facts is None:
            raise BadImage(ImageFault.SHAPE, "this model takes no images")
        if (work.width, work.height) != (facts.width, facts.height):
            raise BadImage(
                ImageFault.SHAPE,
                f"it has {work.width} by {work.height} pixels, "
                f"this model takes {facts.width} by {facts.height}",
            )
        try:
            with torch.inference_mode(), self._on_stream():
                return self._encode(work, num_tokens=facts.num_tokens)
        except (MemoryError, torch.OutOfMemoryError) as err:
            raise BadImage(ImageFault.OUT_OF_MEMORY, "there was no memory for it") from err

    def _encode(self, work: EncodeImage, *, num_tokens: int) -> EncodedImage:
        pixels = torch.frombuffer(bytearray(work.pixels), dtype=torch.uint8)
        rows = self._model.encode_image(pixels.view(work.height, work.width, 3)).contiguous()
        if rows.shape[0] != num_tokens:
            raise BadImage(
                ImageFault.SHAPE, f"it has {rows.shape[0]} rows, images of this model {num_tokens}"
            )
        # Reading them waits for the stream: what is told is there.
        if not bool(torch.isfinite(rows).all()):
            raise BadImage(ImageFault.NOT_FINITE, "its rows are not numbers")
        return EncodedImage(rows=rows, digest=digest_rows(rows))

    def _on_stream(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext() if self._stream is None else torch.cuda.stream(self._stream)


def prepare_thread() -> None:
    """Set up the thread that will encode; other threads keep what they have."""
    torch.set_num_threads(NUM_THREADS)


def digest_rows(rows: torch.Tensor) -> bytes:
    """Digest of the shape and the bits of contiguous rows: 16 bytes of BLAKE2b."""
    hasher = blake2b(struct.pack("<II", *rows.shape), digest_size=_DIGEST_BYTES)
    hasher.update(rows.view(torch.uint8).cpu().numpy().tobytes())
    return hasher.digest()
