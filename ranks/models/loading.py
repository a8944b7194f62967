"""Load a model and digest its files at the same time.

Laws: what is told of progress rises to its total and counts both; when either fails the
other ends soon. Digesting reads each file whole on a thread of its own, beside the thread
that turns tensors into layers: the second of them finds the pages that the first has read.
"""

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass

from ranks.models.registry import CausalLM, Checkpoint, OnProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model on this rank, and the digest of the files that it came from."""

    model: CausalLM
    weights_digest: str


def load_and_digest(
    checkpoint: Checkpoint, load: Callable[[OnProgress], CausalLM], on_progress: OnProgress
) -> LoadedModel:
    """Call `load`, digest the files of the checkpoint, and tell of both as one.

    `on_progress` may be called from either thread, never from two at once.

    Raises:
        BadCheckpoint: A file cannot be used or read.
    """
    progress = _Progress(checkpoint.num_bytes(), on_progress)
    with ThreadPoolExecutor(1, thread_name_prefix="digest") as pool:
        digest = pool.submit(checkpoint.weights_digest, progress.tell_digested)
        try:
            model = load(progress.tell_loaded)
            return LoadedModel(model=model, weights_digest=digest.result())
        finally:
            progress.stop()


class _Progress:
    """Adds what both threads did; bytes are counted once for each."""

    def __init__(self, num_bytes: int, on_progress: OnProgress) -> None:
        self._num_bytes = num_bytes
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._loaded = 0
        self._digested = 0
        self._is_stopped = False

    def tell_loaded(self, done_bytes: int, total_bytes: int) -> None:
        """Count tensors, whose bytes are not all that the files have."""
        with self._lock:
            self._loaded = self._num_bytes * done_bytes // max(1, total_bytes)
            self._tell()

    def tell_digested(self, done_bytes: int) -> None:
        """Count bytes of the files; ends the digest when nobody waits for it any more."""
        with self._lock:
            if self._is_stopped:
                raise CancelledError
            self._digested = done_bytes
            self._tell()

    def stop(self) -> None:
        """Let the digest end at its next chunk."""
        with self._lock:
            self._is_stopped = True

    def _tell(self) -> None:
        self._on_progress(self._loaded + self._digested, 2 * self._num_bytes)
