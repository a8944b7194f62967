"""A folder of safetensors files as a source of tensors, read slice by slice.

Laws: an index names plain files of the folder and nothing else; a link in the folder is
followed, as the cache of Hugging Face is made of links. Pickled weights are never read.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from ranks.errors import BadCheckpoint
from ranks.weights.json_fields import read_json
from ranks.weights.row_table import RowTable, TensorRows

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
# What stands before a text model's names: alone, or beside one that sees, old and new.
_TEXT_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.")
_DTYPE_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


class SafetensorsFolder:
    """The tensors of a folder; implements `WeightSource`."""

    def __init__(self, folder: Path) -> None:
        self.paths = _find_files(folder)
        self._slices: dict[str, Any] = {}  # safetensors has no types for its slices
        self._places: dict[str, Path] = {}
        for path in self.paths:
            self._add_file(path)

    def _add_file(self, path: Path) -> None:
        try:
            file = safe_open(path, framework="pt")
            for stored_name in file.keys():  # noqa: SIM118 (safe_open is no mapping)
                name = _translate(stored_name)
                if name in self._slices:
                    raise BadCheckpoint(f"{path}: tensor {stored_name!r} is there twice")
                self._slices[name] = file.get_slice(stored_name)
                self._places[name] = path
        except (SafetensorError, OSError) as err:
            raise BadCheckpoint(f"{path}: cannot be read: {err}") from err

    def names(self) -> set[str]:
        """All tensors."""
        return set(self._slices)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The whole tensor's shape, None when there is no such tensor."""
        part = self._slices.get(name)
        return None if part is None else tuple(part.get_shape())

    def num_bytes(self, name: str) -> int:
        """Bytes that the whole tensor takes in the file."""
        part = self._slices[name]
        size = _DTYPE_BYTES.get(part.get_dtype(), 1)
        for length in part.get_shape():
            size *= length
        return size

    def read(self, name: str, *, rows: range, columns: range | None) -> torch.Tensor:
        """Read rows, and of those some columns, in the file's type.

        Raises:
            BadCheckpoint: The tensor's type is not supported or its bytes cannot be read.
        """
        part, path = self._slices[name], self._places[name]
        if part.get_dtype() not in _DTYPE_BYTES:
            raise BadCheckpoint(
                f"{path}: tensor {name!r} has type {part.get_dtype()}, "
                f"supported are {', '.join(_DTYPE_BYTES)}"
            )
        try:
            if columns is None:
                tensor: torch.Tensor = part[rows.start : rows.stop]
            else:
                tensor = part[rows.start : rows.stop, columns.start : columns.stop]
        except (SafetensorError, OSError) as err:
            raise BadCheckpoint(f"{path}: tensor {name!r} cannot be read: {err}") from err
        return tensor

    def table(self, name: str, dtype: torch.dtype) -> RowTable:
        """All rows of a matrix, held in the file's type.

        Raises:
            BadCheckpoint: As `read`.
        """
        num_rows = self._slices[name].get_shape()[0]
        return TensorRows(self.read(name, rows=range(num_rows), columns=None), dtype)


def _translate(name: str) -> str:
    """The name without what stands before it."""
    for prefix in _TEXT_PREFIXES:
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            break
    inner = "vision_tower.vision_model."
    return f"vision_tower.{name.removeprefix(inner)}" if name.startswith(inner) else name


def _find_files(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if not index.is_file():
        if not (folder / _SINGLE).is_file():
            raise BadCheckpoint(f"{folder}: neither {_SINGLE} nor {_INDEX} is there")
        return [folder / _SINGLE]
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise BadCheckpoint(f"{index}: weight_map must be an object that is not empty")
    files = set()
    for name in names.values():
        if (
            not isinstance(name, str)
            or Path(name).name != name
            or not name.endswith(".safetensors")
        ):
            raise BadCheckpoint(f"{index}: weight_map names {name!r}, a plain file name is needed")
        files.add(folder / name)
    return sorted(files)
