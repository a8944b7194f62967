"""The metadata of a GGUF file, each field read by name and kind.

What is wrong with a field is an error that names the file, the field and what to do.
"""

from pathlib import Path
from typing import TypeVar

from lanehost.errors import StartupFailed
from ranks.errors import BadCheckpoint
from ranks.gguf_header import map_gguf, read_gguf_header, read_gguf_value

_Kind = TypeVar("_Kind", str, int, float, bool)


class GgufFields:
    """The metadata of one file; keeps the file mapped for as long as it lives."""

    __slots__ = ("_data", "_header", "path")

    def __init__(self, path: Path) -> None:
        """Read the metadata.

        Raises:
            StartupFailed: the file cannot be read.
        """
        self.path = path
        try:
            self._data = map_gguf(path)
            self._header = read_gguf_header(path, self._data)
        except BadCheckpoint as err:
            reason = str(err).removeprefix(f"{path}: ")
            raise StartupFailed(
                f"{path} cannot be read as a GGUF file ({reason}); download or convert it again"
            ) from err

    def get(self, key: str, kind: type[_Kind]) -> _Kind | None:
        """Give a field, or None where the file has none."""
        value = self._contents(key)
        if value is None:
            return None
        if type(value) is not kind:
            raise self._wrong(key, f"is {type(value).__name__}, not {kind.__name__}")
        return value

    def need(self, key: str, kind: type[_Kind]) -> _Kind:
        """Give a field that must be there."""
        value = self.get(key, kind)
        if value is None:
            raise self._wrong(key, "is absent")
        return value

    def need_count(self, key: str) -> int:
        """Give a number above 0 that must be there."""
        count = self.need(key, int)
        if count < 1:
            raise self._wrong(key, f"is {count}, a count above 0 is needed")
        return count

    def need_list(self, key: str, kind: type[_Kind]) -> list[_Kind]:
        """Give a list that must be there."""
        values = self._contents(key)
        if values is None:
            raise self._wrong(key, "is absent")
        if not isinstance(values, list) or not all(type(value) is kind for value in values):
            raise self._wrong(key, f"is not a list of {kind.__name__}")
        return values

    def num_rows(self, tensor: str) -> int | None:
        """Give the rows of a tensor, or None where the file has none of that name."""
        info = self._header.tensors.get(tensor)
        return None if info is None else info.shape[0]

    def _contents(self, key: str) -> object:
        start = self._header.value_starts.get(key)
        if start is None:
            return None
        try:
            return read_gguf_value(self.path, self._data, start)
        except BadCheckpoint as err:
            reason = str(err).removeprefix(f"{self.path}: ")
            raise self._wrong(key, f"cannot be read ({reason})") from err

    def _wrong(self, key: str, what: str) -> StartupFailed:
        return StartupFailed(
            f"{self.path}: field {key} {what}; convert the model again, with its tokenizer"
        )
