"""The metadata of a GGUF file, each field read by name and kind.

What is wrong with a field is an error that names the file, the field and what to do.
"""

from pathlib import Path
from typing import TypeVar

from gguf import GGUFReader

from lanehost.errors import StartupFailed

_Kind = TypeVar("_Kind", str, int, float, bool)

# What the reader raises on a file that is cut off or is no GGUF file at all.
_READ_FAULTS = (OSError, ValueError, LookupError, TypeError, OverflowError)


class GgufFields:
    """The metadata of one file; keeps the file mapped for as long as it lives."""

    __slots__ = ("_fields", "_rows", "path")

    def __init__(self, path: Path) -> None:
        """Read the metadata.

        Raises:
            StartupFailed: the file cannot be read.
        """
        self.path = path
        try:
            reader = GGUFReader(path)
            # GGUF writes the fastest dimension first: rows are the last one.
            self._rows = {str(t.name): int(t.shape[-1]) for t in reader.tensors if len(t.shape)}
        except _READ_FAULTS as err:
            raise StartupFailed(
                f"{path} cannot be read as a GGUF file ({type(err).__name__}: {err}); "
                "download or convert it again"
            ) from err
        self._fields = reader.fields

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
        return self._rows.get(tensor)

    def _contents(self, key: str) -> object:
        if key not in self._fields:
            return None
        try:
            return self._fields[key].contents()
        except _READ_FAULTS as err:
            raise self._wrong(key, f"cannot be read ({err})") from err

    def _wrong(self, key: str, what: str) -> StartupFailed:
        return StartupFailed(
            f"{self.path}: field {key} {what}; convert the model again, with its tokenizer"
        )
