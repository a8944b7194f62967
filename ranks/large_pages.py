"""Memory over large pages, where the system has them.

What is read once a step, weights and KV, is larger than what a processor remembers of small
pages: finding one then takes as long as reading what is in it, and nothing is fetched ahead over
its end.
"""

import contextlib
import mmap


def map_zeros(size: int) -> mmap.mmap:
    """Map `size` bytes of zeros, which take room when they are first written.

    Raises:
        OSError: There is no such room.
    """
    memory = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without large pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
