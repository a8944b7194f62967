"""Read from a model's folder how images stand in its prompts, and how their pixels are made.

A model whose image settings cannot be used still serves text: images are then refused with the
reason. What is read of config.json is what the reference's processor takes from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from lanehost.errors import StartupFailed
from lanehost.images.placeholders import ImageText
from lanehost.images.processor import (
    PREPROCESSOR_CONFIG,
    PROCESSOR_CONFIG,
    ImageProcessor,
    NotUsable,
    read_processor,
)
from lanehost.text.hf_folder import CONFIG, HfFolder
from lanehost.text.tokenizer import Tokenizer

log = structlog.get_logger()

NO_IMAGES = "the model takes no images"


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderImages:
    """How a folder's model takes images, or why it takes none."""

    images: ImageText | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """What a family calls these things in config.json, and what it takes where they are absent."""

    begin: tuple[str, int]
    soft: tuple[str, int]
    end: tuple[str, int]
    num_tokens: tuple[str, int]
    around: str


_FAMILIES = {
    "gemma3": _Family(
        begin=("boi_token_index", 255_999),
        soft=("image_token_index", 262_144),
        end=("eoi_token_index", 256_000),
        num_tokens=("mm_tokens_per_image", 256),
        around="\n\n",
    )
}


def read_image_text(
    folder: HfFolder, config: Mapping[str, Any], tokenizer: Tokenizer
) -> FolderImages:
    """Read how the model takes images.

    Args:
        folder: The model's folder.
        config: The fields of its config.json.
        tokenizer: Its tokenizer.

    Raises:
        StartupFailed: a file cannot be read at all.
    """
    family = _FAMILIES.get(str(config.get("model_type")))
    if family is None or not isinstance(config.get("vision_config"), dict):
        return FolderImages(reason=NO_IMAGES)
    try:
        return FolderImages(images=_read(folder, config, tokenizer, family))
    except (NotUsable, StartupFailed) as error:
        log.warning("images_unusable", model=str(folder.path), reason=str(error))
        return FolderImages(reason=f"{NO_IMAGES}: {error}")


def _read(
    folder: HfFolder, config: Mapping[str, Any], tokenizer: Tokenizer, family: _Family
) -> ImageText:
    num_tokens = _count(folder, config, family.num_tokens)
    begin, soft, end = (
        _special(folder, tokenizer, name, _count(folder, config, (name, default)))
        for name, default in (family.begin, family.soft, family.end)
    )
    return ImageText(
        processor=_read_processor(folder),
        num_tokens=num_tokens,
        token_id=_count(folder, config, family.soft),
        begin=begin,
        soft=soft,
        end=end,
        around=family.around,
    )


def _read_processor(folder: HfFolder) -> ImageProcessor:
    name, fields = PREPROCESSOR_CONFIG, folder.fields(PREPROCESSOR_CONFIG)
    if not fields:
        # Newer folders have one file for all that makes inputs.
        name = PROCESSOR_CONFIG
        fields = folder.fields(PROCESSOR_CONFIG).get("image_processor") or {}
    if not isinstance(fields, dict) or not fields:
        raise NotUsable(f"{folder.path} has no {PREPROCESSOR_CONFIG}")
    try:
        return read_processor(fields)
    except NotUsable as error:
        raise NotUsable(f"{folder.path / name}: {error}") from None


def _count(folder: HfFolder, config: Mapping[str, Any], field: tuple[str, int]) -> int:
    name, default = field
    value = config.get(name, default)
    if type(value) is not int or value < 1:
        raise folder.wrong(CONFIG, name, f"is {value!r}, a number above 0 is needed")
    return value


def _special(folder: HfFolder, tokenizer: Tokenizer, name: str, token_id: int) -> str:
    """Return the text of a token that text is cut at, and that is one id again."""
    text = tokenizer.decode([token_id], keep_special=True)
    if len(text) < 2 or tokenizer.encode_rendered(text) != [token_id]:  # noqa: PLR2004 - it is cut in two
        raise folder.wrong(CONFIG, name, f"is {token_id}, which is no special token of the model")
    return text
