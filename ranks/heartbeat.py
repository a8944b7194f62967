"""The heartbeat of a rank: a thread that tells the master how far it is (ADR 20).

Laws: it beats whatever the main thread does, as long as that leaves Python's lock now and
then, as all waiting and all native computing does. It never holds up what the main thread has
to say: a beat that would stand in a line is dropped, what stands there is a sign of life too.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ranks.link import MasterLink
from ranks.progress import Progress
from ranks.wire.messages import Heartbeat

INTERVAL_S = 0.25


@contextmanager
def beating(link: MasterLink, progress: Progress) -> Iterator[None]:
    """Within this, the heart beats."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(INTERVAL_S):
            link.offer(Heartbeat(step_id=progress.step_id, num_stages=progress.num_stages))

    heart = threading.Thread(target=beat, name="heartbeat", daemon=True)
    heart.start()
    try:
        yield
    finally:
        ended.set()
        heart.join()
