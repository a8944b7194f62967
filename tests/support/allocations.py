"""How many bytes torch holds at most within a block of code, on the CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch.autograd import profiler


@dataclass
class Peak:
    """The most bytes that were allocated at once, beyond those at the start."""

    num_bytes: int = 0


@contextmanager
def peak_of_allocations() -> Iterator[Peak]:
    """Fill in the peak when the block ends."""
    peak = Peak()
    with profiler.profile(profile_memory=True, use_cpu=True) as profile:
        yield peak
    events = profile.kineto_results.events()
    changes = [event for event in events if event.name() == "[memory]"]
    held = 0
    for event in sorted(changes, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak.num_bytes = max(peak.num_bytes, held)
