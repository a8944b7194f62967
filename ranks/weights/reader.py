"""Read this rank's parts of a checkpoint, each shape checked, with progress.

Laws: a tensor is read only after its whole shape was found to be what the config
says. A tensor of the checkpoint that nobody reads is an error: it would mean that the
model computes something else than its files say.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch

from ranks.errors import BadCheckpoint
from ranks.weights.row_table import RowTable, TensorRows

_Made = TypeVar("_Made")

# Old checkpoints carry buffers that are computed from the config.
_DERIVED = ("rotary_emb.inv_freq", "rope_freqs.weight")


class WeightSource(Protocol):
    """Tensors of one checkpoint, read in part.

    Names are those of a Hugging Face llama checkpoint without the leading `model.`, for
    example `layers.0.self_attn.q_proj.weight`; a GGUF's names are translated.
    """

    def names(self) -> set[str]:
        """All tensors."""
        ...

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The whole tensor's shape, None when there is no such tensor."""
        ...

    def num_bytes(self, name: str) -> int:
        """Bytes that the whole tensor takes in the file."""
        ...

    def read(self, name: str, *, rows: range, columns: range | None) -> torch.Tensor:
        """Read rows, and of those some columns, of a vector or matrix.

        Returns a tensor of the file's type, or float32 where the file has groups.
        """
        ...

    def table(self, name: str, dtype: torch.dtype) -> RowTable:
        """All rows of a matrix, held in the file's type on the CPU and looked up as `dtype`."""
        ...


class TensorReader:
    """Tensors of one checkpoint, checked and cast; counts what is done with."""

    def __init__(
        self,
        source: WeightSource,
        *,
        device: torch.device,
        dtype: torch.dtype,
        on_progress: Callable[[int, int], None],
    ) -> None:
        self._source = source
        self._device = device
        self._dtype = dtype
        self._on_progress = on_progress
        self._unread = {name for name in source.names() if not name.endswith(_DERIVED)}
        self._total_bytes = sum(source.num_bytes(name) for name in self._unread)
        self._done_bytes = 0

    def matrix(
        self, name: str, shape: tuple[int, int], *, rows: range | None = None,
        columns: range | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """Read `rows` and `columns` of a matrix whose whole shape is `shape`."""
        self._check(name, shape)
        rows = range(shape[0]) if rows is None else rows
        return self._read(name, rows, columns)

    def table(self, name: str, shape: tuple[int, int]) -> RowTable:
        """Hold a matrix whose whole shape is `shape`, to look up rows of it.

        On the CPU it is held in the file's type; the rows are cast when they are looked up.
        """
        if self._device.type != "cpu":
            return TensorRows(self.matrix(name, shape), self._dtype)
        self._check(name, shape)
        table = self._source.table(name, self._dtype)
        self._note_done(name)
        return table

    def table_and_rows(
        self, name: str, shape: tuple[int, int], rows: range
    ) -> tuple[RowTable, torch.Tensor]:
        """Hold a matrix to look up rows of it, and read `rows` of it to multiply with.

        On the CPU a product packs its weight, so the two cannot share memory; elsewhere
        they do.
        """
        if self._device.type == "cpu":
            return self.table(name, shape), self.matrix(name, shape, rows=rows)
        whole = self.matrix(name, shape)
        return TensorRows(whole, self._dtype), whole[rows.start : rows.stop]

    def vector(self, name: str, length: int, *, part: range | None = None) -> torch.Tensor:
        """Read `part` of a vector whose whole length is `length`."""
        self._check(name, (length,))
        return self._read(name, range(length) if part is None else part, None)

    def whole(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Read a tensor of any number of dimensions whole."""
        self._check(name, shape)
        return self._read(name, range(shape[0]), None)

    def wide_vector(self, name: str, length: int) -> torch.Tensor:
        """Read a vector as float32, whatever the others are read as."""
        self._check(name, (length,))
        tensor = self._source.read(name, rows=range(length), columns=None)
        self._note_done(name)
        return tensor.to(device=self._device, dtype=torch.float32)

    def made_of(self, name: str, shape: tuple[int, int], make: Callable[[], _Made]) -> _Made:
        """Call `make`, which reads of a matrix whose whole shape is `shape` by itself."""
        self._check(name, shape)
        made = make()
        self._note_done(name)
        return made

    def empty(self) -> torch.Tensor:
        """An empty tensor of the type and on the device that tensors are read to."""
        return torch.empty(0, device=self._device, dtype=self._dtype)

    def skip(self, name: str) -> None:
        """Pass over a tensor that may be there but is not needed."""
        self._unread.discard(name)

    def finish(self) -> None:
        """Report that all is read.

        Raises:
            BadCheckpoint: A tensor of the checkpoint was not read by anybody.
        """
        if self._unread:
            raise BadCheckpoint(
                f"tensor {min(self._unread)!r} and {len(self._unread) - 1} more are not part "
                f"of the model that the config describes"
            )
        self._on_progress(self._total_bytes, self._total_bytes)

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        found = self._source.shape(name)
        if found is None:
            raise BadCheckpoint(f"tensor {name!r} is missing; the config needs it as {shape}")
        if found != shape:
            raise BadCheckpoint(f"tensor {name!r} has shape {found}, the config says {shape}")

    def _read(self, name: str, rows: range, columns: range | None) -> torch.Tensor:
        tensor = self._source.read(name, rows=rows, columns=columns)
        self._note_done(name)
        return tensor.to(device=self._device, dtype=self._dtype)

    def _note_done(self, name: str) -> None:
        if name in self._unread:
            self._unread.discard(name)
            self._done_bytes += self._source.num_bytes(name)
            self._on_progress(self._done_bytes, self._total_bytes)
