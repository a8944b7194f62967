"""Load a model's tokenizer, chat template and limits from its files.

The weights are not read here: they are the ranks' business. A template that does not
compile does not keep the model from serving text; chats are then refused with the reason.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from lanehost.errors import InvalidRequest, StartupFailed
from lanehost.images.placeholders import ImageText
from lanehost.text.chat_template import ChatTemplate
from lanehost.text.gguf_fields import GgufFields
from lanehost.text.gguf_tokenizer import tokenizer_from_gguf
from lanehost.text.hf_folder import (
    CONFIG,
    GENERATION_CONFIG,
    TEMPLATE_JINJA,
    TEMPLATE_JSON,
    TOKENIZER_CONFIG,
    HfFolder,
    text_config,
)
from lanehost.text.hf_tokenizer import special_token, tokenizer_from_folder
from lanehost.text.image_text import NO_IMAGES, read_image_text
from lanehost.text.panics import panics_as
from lanehost.text.tokenizer import Tokenizer
from ranks.gguf_header import shortened

log = structlog.get_logger()

# A tokenizer that fails on this fails on everything.
_PLAIN_TEXT = "The quick brown fox jumps over 13 lazy dogs."

# By architecture; files of chat models name <eos> alone as their end.
_TURN_ENDS = {"gemma3": "<end_of_turn>"}

NO_TEMPLATE = "the model has no chat template"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelText:
    """What the master knows of a model: its text side and its limits.

    `vocab_size` counts the rows of the model's embedding; the tokenizer may know fewer ids
    or more. `template` is None when the model has none, or none that compiles;
    `no_template_reason` then says which, and is "" otherwise. So it is with `images`, how they
    stand in its prompts, and `no_images_reason`.
    """

    name: str
    tokenizer: Tokenizer
    template: ChatTemplate | None
    no_template_reason: str
    eos_token_ids: frozenset[int]
    context_length: int
    vocab_size: int
    images: ImageText | None = None
    no_images_reason: str = NO_IMAGES


def load_model_text(model_path: Path) -> ModelText:
    """Load from a GGUF file or a Hugging Face folder.

    Raises:
        StartupFailed: a file or field is missing or wrong; names it and says what to do.
    """
    with panics_as(StartupFailed(f"{model_path}: its tokenizer cannot be built")):
        try:
            text = _load(model_path)
        except StartupFailed as err:
            raise StartupFailed(shortened(str(err))) from err
    try:
        text.tokenizer.encode(_PLAIN_TEXT)
    except InvalidRequest as err:
        raise StartupFailed(f"{model_path}: its tokenizer fails on plain text ({err})") from err
    return text


def _load(model_path: Path) -> ModelText:
    if model_path.is_dir():
        return _from_folder(HfFolder(model_path))
    if model_path.is_file():
        return _from_gguf(GgufFields(model_path))
    raise StartupFailed(
        f"--model {model_path} does not exist; name a GGUF file or a Hugging Face folder"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Template:
    template: ChatTemplate | None
    reason: str


def _compile(source: str | None, path: Path, *, bos_token: str, eos_token: str) -> _Template:
    if source is None:
        return _Template(template=None, reason=NO_TEMPLATE)
    try:
        template = ChatTemplate(source, bos_token=bos_token, eos_token=eos_token)
    except StartupFailed as err:
        log.warning("chat_template_unusable", model=str(path), reason=str(err))
        return _Template(template=None, reason=str(err))
    return _Template(template=template, reason="")


def _from_gguf(fields: GgufFields) -> ModelText:
    architecture = fields.need("general.architecture", str)
    rows = fields.num_rows("token_embd.weight")
    vocab_size = fields.need_count(f"{architecture}.vocab_size") if rows is None else rows
    tokens = fields.need_list("tokenizer.ggml.tokens", str)
    ends = {
        name: token_id
        for name in ("bos", "eos", "eot", "eom")
        if (token_id := fields.get(f"tokenizer.ggml.{name}_token_id", int)) is not None
    }
    for name, token_id in ends.items():
        if not 0 <= token_id < min(vocab_size, len(tokens)):
            raise StartupFailed(
                f"{fields.path}: field tokenizer.ggml.{name}_token_id is {token_id}, "
                f"outside the vocabulary of {min(vocab_size, len(tokens))} tokens"
            )
    template = _compile(
        fields.get("tokenizer.chat_template", str),
        fields.path,
        bos_token=tokens[ends["bos"]] if "bos" in ends else "",
        eos_token=tokens[ends["eos"]] if "eos" in ends else "",
    )
    return ModelText(
        name=fields.path.stem,
        tokenizer=tokenizer_from_gguf(fields),
        template=template.template,
        no_template_reason=template.reason,
        eos_token_ids=frozenset(token_id for name, token_id in ends.items() if name != "bos")
        | _turn_ends(architecture, tokens[:vocab_size]),
        context_length=fields.need_count(f"{architecture}.context_length"),
        vocab_size=vocab_size,
    )


def _turn_ends(architecture: str, tokens: list[str]) -> frozenset[int]:
    """Give the token that ends a turn, where its files do not say it and llama.cpp knows it."""
    word = _TURN_ENDS.get(architecture)
    return frozenset({tokens.index(word)} if word in tokens else ())


def _from_folder(folder: HfFolder) -> ModelText:
    config = text_config(folder)
    vocab_size = _positive(folder, config, "vocab_size")
    tokenizer = tokenizer_from_folder(folder)
    template = _compile(
        _template_source(folder),
        folder.path,
        bos_token=special_token(folder, "bos") or "",
        eos_token=special_token(folder, "eos") or "",
    )
    images = read_image_text(folder, folder.need_fields(CONFIG), tokenizer)
    return ModelText(
        name=folder.path.resolve().name,
        tokenizer=tokenizer,
        template=template.template,
        no_template_reason=template.reason,
        eos_token_ids=_eos_token_ids(folder, config, vocab_size),
        context_length=_positive(folder, config, "max_position_embeddings"),
        vocab_size=vocab_size,
        images=images.images,
        no_images_reason=images.reason,
    )


def _positive(folder: HfFolder, config: dict[str, Any], field: str) -> int:
    value = config.get(field)
    if type(value) is not int or value < 1:
        raise folder.wrong(CONFIG, field, f"is {value!r}, a count above 0 is needed")
    return value


def _eos_token_ids(folder: HfFolder, config: dict[str, Any], vocab_size: int) -> frozenset[int]:
    """Read the ids that end a reply: generation_config.json has the word, then config.json."""
    name = GENERATION_CONFIG
    eos = folder.fields(name).get("eos_token_id")
    if eos is None:
        name, eos = CONFIG, config.get("eos_token_id")
    ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
    for token_id in ids:
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            raise folder.wrong(
                name,
                "eos_token_id",
                f"has {token_id!r}, ids from 0 to {vocab_size - 1} are allowed",
            )
    if not ids:
        log.warning("model_without_eos", model=str(folder.path))
    return frozenset(ids)


def _template_source(folder: HfFolder) -> str | None:
    """Find the template: a file of its own, or a field of tokenizer_config.json."""
    alone = folder.text(TEMPLATE_JINJA)
    if alone is not None:
        return alone
    name, field = TEMPLATE_JSON, "chat_template"
    source = folder.fields(name).get(field)
    if source is None:
        name = TOKENIZER_CONFIG
        source = folder.fields(name).get(field)
    if isinstance(source, list):  # named templates
        named = {t.get("name"): t.get("template") for t in source if isinstance(t, dict)}
        source = named.get("default")
    if source is not None and not isinstance(source, str):
        raise folder.wrong(name, field, f"is a {type(source).__name__}, not a text")
    return source
