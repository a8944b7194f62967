"""The matrices of a checkpoint as the kernels take them: as they are, or rounded at load.

    groups of a GGUF that have a kernel   repacked, never rounded
    all else, where that was asked for    read run by run as floats, rounded, packed

Laws: nothing is rounded that nobody asked to be, and a group that has a kernel is not
rounded once more. A matrix is never held whole as floats. Groups are rounded each by
itself, so ranks that hold parts of a matrix hold the very groups of who holds it whole.
"""

from collections.abc import Callable
from enum import StrEnum

import numpy as np
import torch

from ranks.errors import BadCheckpoint
from ranks.native.packing import (
    COLUMNS,
    GROUP,
    PACKABLE,
    ROWS_AT_ONCE,
    Groups,
    MatrixKind,
    PackedMatrix,
    pack,
    pack_groups,
    read_groups,
    to_floats,
    to_q8_0,
)
from ranks.native.parts import Floats
from ranks.native.quantize import NotHeld, quantize_eight, quantize_four
from ranks.shards import MAX_SHARDS
from ranks.weights.gguf_file import GgufFile
from ranks.weights.model_config import ModelConfig
from ranks.weights.reader import TensorReader, WeightSource
from ranks.weights.row_table import RowTable, StoredRows


class Weights(StrEnum):
    """What weights are asked to be held as; `AUTO` leaves them as they are in the file."""

    AUTO = "auto"
    FLOAT32 = "float32"
    INT8 = "int8"
    INT4 = "int4"

    @property
    def is_rounded(self) -> bool:
        """Whether floats are rounded to groups at load."""
        return self in (Weights.INT8, Weights.INT4)


# What a native model says of its weights when none was rounded at load.
STORED = "stored"
# Rows of a vocabulary, and what a token id means, are worth eight bits in any case.
_VOCABULARY = ("embed_tokens.weight", "lm_head.weight")
_ROUND: dict[MatrixKind, Callable[[Floats], Groups]] = {
    MatrixKind.EIGHT_BIT: quantize_eight,
    MatrixKind.FOUR_BIT: quantize_four,
}


def why_not_native(config: ModelConfig, source: WeightSource) -> str | None:
    """What of a checkpoint the kernels do not take as it is; None when they take all."""
    if not isinstance(source, GgufFile):
        return "the weights are no GGUF file"
    return why_not_fitting(config) or _why_not_stored(config, source)


def why_not_rounded(config: ModelConfig, source: WeightSource) -> str | None:
    """Why a checkpoint cannot be rounded at load; None when it can."""
    if isinstance(source, GgufFile) and _why_not_stored(config, source) is None:
        kinds = sorted({source.kind_name(name) for name in _matrices(config, source)})
        return (
            f"all matrices are in groups already ({', '.join(kinds)}) and are computed as they "
            f"are; allowed is auto"
        )
    return why_not_fitting(config)


def why_not_fitting(config: ModelConfig) -> str | None:
    """What of a model's family or sizes the kernels do not take; None when they take all."""
    if config.gemma is not None:
        return f"the kernels do not compute the family {config.family}"
    for what, size, multiple in (
        ("hidden_size", config.hidden_size, GROUP),
        ("intermediate_size", config.intermediate_size, GROUP),
        ("head_dim", config.head_dim, COLUMNS),
        (
            "the width of a KV group" if config.num_kv_heads >= MAX_SHARDS else "head_dim",
            _least_cut(config),
            GROUP,
        ),
    ):
        if size % multiple:
            return f"{what} is {size}, no multiple of {multiple}"
    if config.intermediate_size < MAX_SHARDS * GROUP:
        return f"intermediate_size is {config.intermediate_size}, too small to be cut"
    return None


def _least_cut(config: ModelConfig) -> int:
    """Columns between two places where heads may be cut."""
    is_shared = config.num_kv_heads < MAX_SHARDS
    return config.head_dim * (1 if is_shared else config.queries_per_kv_head)


def _why_not_stored(config: ModelConfig, file: GgufFile) -> str | None:
    for name in sorted(_matrices(config, file)):
        kind_name = file.kind_name(name)
        if kind_name not in PACKABLE:
            return f"{name} has type {kind_name}"
    return None


def _matrices(config: ModelConfig, file: GgufFile) -> set[str]:
    head = "embed_tokens.weight" if config.is_tied else "lm_head.weight"
    names = {name for name in file.names() if name.endswith("_proj.weight")} | {head}
    return names & file.names()


class MatrixReader:
    """Reads matrices for the kernels.

    Args:
        source: The checkpoint.
        reader: Checks shapes, and counts what is done with.
        weights: What to round to what has no kernel.
        head_dim: Rows of q and k are read in whole heads.
    """

    def __init__(
        self, source: WeightSource, reader: TensorReader, *, weights: Weights, head_dim: int
    ) -> None:
        self._source = source
        self._reader = reader
        self._weights = weights
        self._rows_at_once = max(1, ROWS_AT_ONCE // head_dim) * head_dim

    @property
    def held_as(self) -> str:
        """What the weights are held as, in a word."""
        return self._weights.value if self._weights.is_rounded else STORED

    def matrix(
        self, name: str, shape: tuple[int, int], *, rows: range, columns: range
    ) -> PackedMatrix:
        """Read `rows` and `columns`, which lie on groups, of a matrix whose whole shape is `shape`.

        Raises:
            BadCheckpoint: It is missing, misshapen, or holds what cannot be rounded.
        """
        return self._reader.made_of(name, shape, lambda: self._packed(name, rows, columns))

    def table(self, name: str, shape: tuple[int, int]) -> RowTable:
        """Hold a matrix whose whole shape is `shape`, to look up rows of it.

        Raises:
            BadCheckpoint: As `matrix`.
        """
        if not self._weights.is_rounded or self._stored_kind(name) is not None:
            return self._reader.table(name, shape)
        return self._reader.made_of(name, shape, lambda: self._rounded_table(name, shape))

    def _packed(self, name: str, rows: range, columns: range) -> PackedMatrix:
        kind_name = self._stored_kind(name)
        if kind_name is not None:
            assert isinstance(self._source, GgufFile)
            raw = self._source.read_raw(name, rows=rows, columns=columns)
            return pack(kind_name, raw, len(columns))
        assert self._weights.is_rounded, f"{name} has no groups, `why_not_native` says so"
        kind = MatrixKind.FOUR_BIT if self._weights is Weights.INT4 else MatrixKind.EIGHT_BIT
        if name in _VOCABULARY:
            kind = MatrixKind.EIGHT_BIT

        def groups_of(part: range) -> Groups:
            whole = range(rows.start + part.start, rows.start + part.stop)
            return self._round(name, kind, whole, columns)

        size = (len(rows), len(columns))
        return pack_groups(kind, size, groups_of, rows_at_once=self._rows_at_once)

    def _rounded_table(self, name: str, shape: tuple[int, int]) -> RowTable:
        num_rows, width = shape
        raw = np.empty((num_rows, width // GROUP * PACKABLE["Q8_0"][0]), dtype=np.uint8)
        for begin in range(0, num_rows, ROWS_AT_ONCE):
            part = range(begin, min(num_rows, begin + ROWS_AT_ONCE))
            groups = self._round(name, MatrixKind.EIGHT_BIT, part, range(width))
            raw[part.start : part.stop] = to_q8_0(groups)

        def to_values(rows: torch.Tensor) -> torch.Tensor:
            if not len(rows):  # the groups of no row have no size
                return torch.empty(0, width)
            return torch.from_numpy(to_floats(read_groups("Q8_0", rows.numpy())))

        return StoredRows(torch.from_numpy(raw), to_values, torch.float32, is_q8_0=True)

    def _round(self, name: str, kind: MatrixKind, rows: range, columns: range) -> Groups:
        values = self._source.read(name, rows=rows, columns=columns).to(torch.float32)
        try:
            return _ROUND[kind](np.ascontiguousarray(values.numpy()))
        except NotHeld as err:
            raise BadCheckpoint(
                f"--weights {self._weights} cannot be had: {name} holds {err}"
            ) from err

    def _stored_kind(self, name: str) -> str | None:
        """The type of a matrix whose groups have a kernel."""
        if not isinstance(self._source, GgufFile) or self._source.shape(name) is None:
            return None
        kind_name = self._source.kind_name(name)
        return kind_name if kind_name in PACKABLE else None
