"""Blocks of the pool as the tensors of a state, one after the other, and back.

    bind      a state and a pool that were made of the same weights: the parts of the pool, named
    snapshot  a part's blocks, in order, into bytes
    adopt     bytes into a part's blocks

Laws: a copy is of whole blocks that were named, and touches no other; the pool is lent for one
copy at a time, and is never touched once it was taken back: whoever takes it back waits for the
copy that is under way and for no more.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from ranks.models.state import StateTensor

Bytes = npt.NDArray[np.uint8]


class PoolGone(Exception):
    """The pool was taken back: its epoch is over."""


class PoolParts(Protocol):
    """The tensors of a state in the pool, by number."""

    def snapshot(self, number: int, block_ids: Sequence[int], into: Bytes) -> None:
        """Copy a part's blocks, in order, into bytes [heads x blocks x bytes of a block]."""
        ...

    def adopt(self, number: int, block_ids: Sequence[int], data: Bytes) -> None:
        """Copy such bytes into a part's blocks."""
        ...

    def finish(self) -> None:
        """Wait until all that was adopted is there for whoever computes."""
        ...


def bind(state: Sequence[StateTensor], pool: torch.Tensor) -> PoolParts:
    """Find the tensors of a state in a pool, see `KvStore.pool`.

    Raises:
        ValueError: The pool is another state's.
    """
    num_layers, num_parts, num_heads, _, _, head_dim = pool.shape
    found = [(num_heads, head_dim, pool.dtype)] * (num_layers * num_parts)
    if found != [(tensor.num_heads, tensor.head_dim, tensor.dtype) for tensor in state]:
        raise ValueError(
            f"the pool is {tuple(pool.shape)} of {pool.dtype}, no pool of these "
            f"{len(state)} tensors"
        )
    parts = pool.flatten(0, 1)  # [tensors, heads, blocks, positions, head_dim]
    return HostParts(parts) if pool.device.type == "cpu" else DeviceParts(parts)


class HostParts:
    """Parts of a pool in this machine's memory."""

    def __init__(self, parts: torch.Tensor) -> None:
        """Take the parts, [tensors, heads, blocks, positions, head_dim]."""
        num_tensors, num_heads, num_blocks = parts.shape[:3]
        # As bytes: numpy has not all types that torch has. numpy copies on the thread that
        # asks, without Python's lock; torch would wake its threads, which compute.
        self._parts: Bytes = (
            parts.view(torch.uint8).numpy().reshape(num_tensors, num_heads, num_blocks, -1)
        )

    def snapshot(self, number: int, block_ids: Sequence[int], into: Bytes) -> None:
        """Copy a part's blocks, in order, into bytes [heads x blocks x bytes of a block]."""
        part = self._parts[number]
        rows = into.reshape(part.shape[0], len(block_ids), part.shape[2])
        # Whatever is out of range was refused before; this mode copies without a buffer.
        np.take(part, _indices(block_ids), axis=1, out=rows, mode="clip")

    def adopt(self, number: int, block_ids: Sequence[int], data: Bytes) -> None:
        """Copy such bytes into a part's blocks."""
        part = self._parts[number]
        rows = data.reshape(part.shape[0], len(block_ids), part.shape[2])
        for head, found in zip(part, rows, strict=True):
            head[_indices(block_ids)] = found

    def finish(self) -> None:
        """Have nothing to wait for."""


class DeviceParts:
    """Parts of a pool in the memory of a GPU; copies go on a stream of their own."""

    def __init__(self, parts: torch.Tensor) -> None:
        """Take the parts, [tensors, heads, blocks, positions, head_dim]."""
        self._parts = parts
        self._stream = torch.cuda.Stream(parts.device)

    def snapshot(self, number: int, block_ids: Sequence[int], into: Bytes) -> None:
        """Copy a part's blocks, in order, into bytes [heads x blocks x bytes of a block]."""
        # What the last steps wrote may still be on its way, on a follower too.
        self._stream.wait_stream(torch.cuda.default_stream(self._parts.device))
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            indices = torch.from_numpy(_indices(block_ids)).to(self._parts.device)
            found = self._parts[number].index_select(1, indices)
            torch.from_numpy(into).copy_(found.view(torch.uint8).flatten())
        self._stream.synchronize()

    def adopt(self, number: int, block_ids: Sequence[int], data: Bytes) -> None:
        """Copy such bytes into a part's blocks."""
        part = self._parts[number]
        shape = (part.shape[0], len(block_ids), *part.shape[2:])
        self._stream.wait_stream(torch.cuda.default_stream(part.device))
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            indices = torch.from_numpy(_indices(block_ids)).to(part.device)
            rows = torch.from_numpy(data).to(part.device).view(part.dtype).view(shape)
            part.index_copy_(1, indices, rows)
        self._stream.synchronize()

    def finish(self) -> None:
        """Wait for the stream."""
        self._stream.synchronize()


class PoolLoan:
    """The pool of one epoch, lent to the thread for files."""

    def __init__(self, parts: PoolParts, *, num_blocks: int, block_size: int) -> None:
        """Lend parts of a pool; the master may name blocks below `num_blocks`."""
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._lock = threading.Lock()
        self._parts: PoolParts | None = parts

    @contextmanager
    def parts(self) -> Iterator[PoolParts]:
        """Have the parts for one copy.

        Raises:
            PoolGone: They were taken back.
        """
        with self._lock:
            if self._parts is None:
                raise PoolGone
            yield self._parts

    def take_back(self) -> None:
        """End the loan; waits for the copy that is under way."""
        with self._lock:
            self._parts = None


def _indices(block_ids: Sequence[int]) -> npt.NDArray[np.int64]:
    # Block 0 of the pool is empty for ever: the master's block n is n + 1 there.
    return np.asarray(block_ids, dtype=np.int64) + 1
