"""The heart beats within its block, tells what is so then, and has ended behind it."""

import queue
import threading

from ranks.heartbeat import beating
from ranks.progress import Progress
from ranks.wire.messages import Heartbeat


class Listener:
    """The part of a link that a heart needs."""

    def __init__(self):
        self.heard = queue.Queue()

    def offer(self, message):
        self.heard.put(message)


def test_the_heart_tells_the_step_and_the_stages_of_now():
    link, progress = Listener(), Progress(lambda: 40)
    with beating(link, progress):
        assert link.heard.get(timeout=10) == Heartbeat(step_id=0, num_stages=40)
        with progress.step(3):
            while link.heard.get(timeout=10) != Heartbeat(step_id=3, num_stages=41):
                pass


def test_no_thread_is_left_behind():
    with beating(Listener(), Progress(lambda: 0)):
        assert "heartbeat" in [thread.name for thread in threading.enumerate()]
    assert "heartbeat" not in [thread.name for thread in threading.enumerate()]
