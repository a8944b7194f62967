"""The JSON files of a Hugging Face model folder, each field read by name and kind.

What is wrong with a field is an error that names the file, the field and what to do.
"""

import json
from pathlib import Path
from typing import Any

from lanehost.errors import StartupFailed

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
TEMPLATE_JINJA = "chat_template.jinja"
TEMPLATE_JSON = "chat_template.json"

# What Gemma 3's class takes for a field that its config leaves out.
_GEMMA = {"vocab_size": 262_208, "max_position_embeddings": 131_072}


class HfFolder:
    """One model folder; every file is read when it is asked for."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        """Take a folder that exists."""
        self.path = path

    def text(self, name: str) -> str | None:
        """Give the text of a file, or None where the folder has none of that name.

        Raises:
            StartupFailed: the file cannot be read as text.
        """
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as err:
            raise StartupFailed(f"{self.path / name} cannot be read: {err}") from err

    def need_text(self, name: str) -> str:
        """Give the text of a file that must be there."""
        text = self.text(name)
        if text is None:
            raise StartupFailed(
                f"{self.path / name} is absent; a model folder needs {CONFIG}, {TOKENIZER} "
                "and its safetensors files"
            )
        return text

    def fields(self, name: str) -> dict[str, Any]:
        """Give the fields of a JSON file, none where the folder has none of that name."""
        text = self.text(name)
        return {} if text is None else self._parse(name, text)

    def need_fields(self, name: str) -> dict[str, Any]:
        """Give the fields of a JSON file that must be there."""
        return self._parse(name, self.need_text(name))

    def wrong(self, name: str, field: str, what: str) -> StartupFailed:
        """Make the error for a field that cannot be used."""
        return StartupFailed(f"{self.path / name}: field {field} {what}")

    def _parse(self, name: str, text: str) -> dict[str, Any]:
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as err:  # a plain ValueError: a number of 4301 digits
            raise StartupFailed(
                f"{self.path / name} is not JSON ({err}); download it again"
            ) from err
        if not isinstance(fields, dict):
            raise StartupFailed(f"{self.path / name} holds no JSON object; download it again")
        return fields


def text_config(folder: HfFolder) -> dict[str, Any]:
    """Give the fields of config.json that are of the text model, some over its defaults.

    A model with eyes has them in an object of their own.

    Raises:
        StartupFailed: the file cannot be read, or that object is none.
    """
    fields = folder.need_fields(CONFIG)
    kind = fields.get("model_type")
    if kind == "gemma3_text":
        return _GEMMA | fields
    if kind != "gemma3":
        return fields
    inner = fields.get("text_config")
    if not isinstance(inner, dict):
        raise folder.wrong(CONFIG, "text_config", f"is {inner!r}, an object is needed")
    ends = fields.get("eos_token_id")
    return _GEMMA | inner | ({} if ends is None else {"eos_token_id": ends})
