"""What `serve` and `launch` are told of images."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from lanehost.cli_disk import Size
from lanehost.images.limits import ImageLimits
from lanehost.settings import (
    DEVICES,
    IDLE_STAGED_ROWS,
    EngineSettings,
    ImageSettings,
    RankGroupSettings,
)

_IMAGES = ImageSettings()
_ENGINE = EngineSettings()
_RANKS = RankGroupSettings(model_path=Path())

# Any: what click.option gives takes a function or a command, and gives it back.
IMAGE_OPTIONS: tuple[Any, ...] = (
    click.option(
        "--max-image-bytes",
        type=Size(),
        default=_IMAGES.limits.max_image_bytes,
        show_default=True,
        metavar="SIZE",
        help="Most bytes of an image's file.",
    ),
    click.option(
        "--max-image-pixels",
        default=_IMAGES.limits.max_image_pixels,
        show_default=True,
        help="Most pixels of an image, as stored; one more is refused before it is unpacked.",
    ),
    click.option(
        "--max-images",
        default=_IMAGES.limits.max_images,
        show_default=True,
        help="Most images of one request.",
    ),
    click.option(
        "--max-held-images",
        type=Size(),
        default=_IMAGES.max_held_bytes,
        show_default=True,
        metavar="SIZE",
        help="Most memory for the images of all open requests and uploads; one more is refused.",
    ),
    click.option(
        "--max-uploads",
        default=_IMAGES.max_uploads,
        show_default=True,
        help="Most images that are uploaded and kept for requests.",
    ),
    click.option(
        "--upload-lifetime",
        default=_IMAGES.upload_lifetime_s,
        show_default=True,
        metavar="SECONDS",
        help="How long an uploaded image is kept.",
    ),
    click.option(
        "--image-cache-tokens",
        default=_RANKS.image_cache_tokens,
        show_default=True,
        help="Most rows of encoded images that ranks keep.",
    ),
    click.option(
        "--encoder-device",
        type=click.Choice(DEVICES),
        default=_RANKS.encoder_device,
        show_default=True,
        help="Where images are encoded; `auto` is where the model computes.",
    ),
    click.option(
        "--staged-rows",
        default=_ENGINE.staged_rows,
        show_default=True,
        help="Most rows of a pass over prompts with images, while other requests run.",
    ),
    click.option(
        "--max-stall-ms",
        default=_ENGINE.max_stall_ms,
        show_default=True,
        metavar="MILLISECONDS",
        help="Longest step that running replies wait for because of images; 0 runs passes whole.",
    ),
)


def max_staged_tokens(options: Mapping[str, Any]) -> int:
    """Return the rows that a staged pass may have that nobody waits for."""
    return max(IDLE_STAGED_ROWS, int(options["staged_rows"]))


def build_images(options: Mapping[str, Any]) -> ImageSettings:
    """Turn the options into settings, which check themselves.

    Raises:
        StartupFailed: a value is out of range.
    """
    return ImageSettings(
        limits=ImageLimits(
            max_image_bytes=options["max_image_bytes"],
            max_image_pixels=options["max_image_pixels"],
            max_images=options["max_images"],
        ),
        max_held_bytes=options["max_held_images"],
        max_uploads=options["max_uploads"],
        upload_lifetime_s=options["upload_lifetime"],
    )
