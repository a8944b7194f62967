"""The rows of images that a rank keeps, by number.

Laws: orders alone change it; what was dropped before it came is not kept; a store that is closed
holds nothing and takes nothing. It lives as long as its epoch: the next one starts empty, and the
master orders anew what it needs. How many rows it holds is the master's to bound.
"""

import threading

import torch


class ImageStore:
    """Rows [tokens, hidden] of one epoch's images; may be asked from any thread."""

    def __init__(self) -> None:
        """Begin empty."""
        self._lock = threading.Lock()
        # None until the rows are there.
        self._rows: dict[int, torch.Tensor | None] = {}
        self._is_closed = False

    def expect(self, image_id: int) -> None:
        """Have a place for the rows of an image that was ordered."""
        with self._lock:
            if not self._is_closed:
                self._rows[image_id] = None

    def put(self, image_id: int, rows: torch.Tensor) -> None:
        """Keep the rows of an image, unless it was dropped meanwhile."""
        with self._lock:
            if image_id in self._rows:
                self._rows[image_id] = rows

    def drop(self, image_id: int) -> None:
        """Forget an image, whether its rows are there or not."""
        with self._lock:
            self._rows.pop(image_id, None)

    def find(self, image_id: int) -> torch.Tensor | None:
        """Return the rows of an image; None where they are not here.

        On CUDA they are marked as used by the stream of the caller: they were made on another.
        """
        with self._lock:
            rows = self._rows.get(image_id)
        if rows is not None and rows.is_cuda:
            rows.record_stream(torch.cuda.current_stream(rows.device))
        return rows

    def close(self) -> None:
        """Forget all, for good."""
        with self._lock:
            self._rows.clear()
            self._is_closed = True
