"""How far this rank is: what its heartbeat tells, and another thread may read at any time.

No lock: each number is written by one thread, and one that is a moment old does no harm.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Progress:
    """Marked by who runs steps, advanced by the model within them."""

    def __init__(self, num_stages: Callable[[], int]) -> None:
        """Take what counts the stages of the model, from any thread, never downwards."""
        self._count = num_stages
        self._num_marks = 0
        self.step_id = 0  # of the step that is computed, 0 for none

    @property
    def num_stages(self) -> int:
        """Rises while a step is computed, and stands still when it hangs."""
        return self._num_marks + self._count()

    @contextmanager
    def step(self, step_id: int) -> Iterator[None]:
        """Within this, a step is computed."""
        self._num_marks += 1
        self.step_id = step_id
        try:
            yield
        finally:
            self.step_id = 0
            self._num_marks += 1
