"""JSON files of a checkpoint, each field read by name and kind."""

import json
from pathlib import Path
from typing import Any

from ranks.errors import BadCheckpoint

_MAX_JSON_BYTES = 64 << 20
_MAX_REAL = 1e30  # JSON knows whole numbers that no float can hold


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file of bounded size.

    Raises:
        BadCheckpoint: The file is missing, too large or not a JSON object.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_JSON_BYTES + 1)
        if len(text) > _MAX_JSON_BYTES:
            raise BadCheckpoint(f"{path}: larger than the limit of {_MAX_JSON_BYTES} bytes")
        value = json.loads(text)
    except (OSError, ValueError, RecursionError) as err:
        raise BadCheckpoint(f"{path}: cannot be read: {err}") from err
    if not isinstance(value, dict):
        raise BadCheckpoint(f"{path}: a JSON object is needed")
    return value


class JsonFields:
    """Typed look-ups in a JSON object."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path = path
        self.values = values

    def error(self, message: str) -> BadCheckpoint:
        """Make the error for a field that cannot be used."""
        return BadCheckpoint(f"{self.path}: {message}")

    def whole(self, name: str) -> int:
        """Give a whole number that must be there."""
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(f"{name} is {value!r}, a whole number is needed")
        if abs(value) > _MAX_REAL:
            raise self.error(f"{name} is beyond the limit of {_MAX_REAL}")
        return value

    def real(self, name: str) -> float:
        """Give a number that must be there."""
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(f"{name} is {value!r}, a number is needed")
        if abs(value) > _MAX_REAL:
            raise self.error(f"{name} is beyond the limit of {_MAX_REAL}")
        return float(value)

    def truth(self, name: str) -> bool:
        """Give true or false, which must be there."""
        value = self.values.get(name)
        if not isinstance(value, bool):
            raise self.error(f"{name} is {value!r}, true or false is needed")
        return value

    def part(self, name: str, defaults: dict[str, Any]) -> "JsonFields":
        """The fields of an object within this one, over what stands for those not there."""
        value = self.values.get(name)
        if not isinstance(value, dict):
            raise self.error(f"{name} is {value!r}, an object is needed")
        return JsonFields(self.path, defaults | value)
