"""The rank's end of the stream: order kept, the end told, last words heard."""

import subprocess
import sys
import threading
import time

import grpc
import pytest

from ranks import link as link_module
from ranks.errors import MasterLost
from ranks.guard import EXIT_MASTER_GONE
from ranks.link import MasterLink, open_channel
from ranks.wire.codec import decode_rank_message
from ranks.wire.file_messages import FileDone, FileOrder, SweepFiles
from ranks.wire.messages import Fatal, Heartbeat, Leave, Ready, Shutdown
from tests.support.scripted_master import scripted_master


@pytest.fixture
def linked():
    told, lost = [], threading.Event()
    with (
        scripted_master() as master,
        open_channel(master.address) as channel,
        MasterLink(
            channel, on_leave=told.append, on_file=print, on_image=print, on_lost=lost.set
        ) as link,
    ):
        link.told, link.lost = told, lost
        yield master, link


def test_messages_arrive_in_order_both_ways(linked):
    master, link = linked
    for number in (1, 2, 3):
        link.send(Ready(epoch=number))
        master.say(Shutdown(reason=str(number)))
    assert [master.hear().epoch for _ in range(3)] == [1, 2, 3]
    assert [link.receive().reason for _ in range(3)] == ["1", "2", "3"]


def test_the_end_of_the_stream_is_told_after_what_came_before_it_and_ever_after(linked):
    master, link = linked
    master.say(Shutdown(reason="before"))
    master.hang_up()
    assert link.receive().reason == "before"
    for _ in range(2):
        with pytest.raises(MasterLost):
            link.receive()


def test_bytes_that_are_no_message_end_the_stream(linked):
    master, link = linked
    master.say_bytes(b"\xff\xff")
    with pytest.raises(MasterLost, match="the master sent 2 bytes are no ConnectResponse"):
        link.receive()


def test_who_owns_the_rank_hears_of_the_end_from_another_thread(linked):
    master, link = linked
    assert not link.lost.is_set()
    master.hang_up()
    assert link.lost.wait(10)


def test_a_stream_that_the_rank_ends_itself_is_not_lost():
    lost = threading.Event()
    with scripted_master() as master, open_channel(master.address) as channel:
        with MasterLink(
            channel, on_leave=print, on_file=print, on_image=print, on_lost=lost.set
        ) as link:
            pass
        with pytest.raises(MasterLost):
            link.receive(timeout_s=10)
    assert not lost.is_set()


def test_a_refusal_by_the_reading_thread_waits_for_no_room_and_is_sent_all_the_same(monkeypatch):
    left, goes_on = threading.Event(), threading.Event()
    requests = MasterLink._requests

    def taken_late(link):
        assert goes_on.wait(10)
        yield from requests(link)

    def refuse(order, answer):
        answer(FileDone(order_id=order.order_id, epoch=1))

    monkeypatch.setattr(link_module, "_MAX_QUEUED", 2)
    monkeypatch.setattr(MasterLink, "_requests", taken_late)
    with (
        scripted_master() as master,
        open_channel(master.address) as channel,
        MasterLink(
            channel, on_leave=lambda _: left.set(), on_file=refuse, on_image=print, on_lost=print
        ) as link,
    ):
        for epoch in (1, 2):
            link.send(Ready(epoch=epoch))
        for order_id in range(1, 6):
            master.say(FileOrder(order_id=order_id, epoch=1, work=SweepFiles(known=())))
        master.say(Leave(epoch=1))
        assert left.wait(10)
        goes_on.set()
        heard = [master.hear() for _ in range(7)]
        assert [one.epoch for one in heard if isinstance(one, Ready)] == [1, 2]
        assert [one.order_id for one in heard if isinstance(one, FileDone)] == [1, 2, 3, 4, 5]
        # Also when nothing else is on its way.
        master.say(FileOrder(order_id=9, epoch=1, work=SweepFiles(known=())))
        assert master.hear().order_id == 9


STUCK = """
import sys, time
from ranks.link import MasterLink, leave_soon, open_channel
with open_channel(sys.argv[1]) as channel:
    with MasterLink(channel, on_leave=print, on_file=print, on_image=print, on_lost=leave_soon):
        print("linked", flush=True)
        time.sleep(1000)
"""


def test_a_rank_whose_stream_ended_is_gone_whatever_its_main_thread_waits_for():
    with scripted_master() as master:
        rank = subprocess.Popen(
            [sys.executable, "-c", STUCK, master.address], stdout=subprocess.PIPE, text=True
        )
        with rank:
            assert rank.stdout.readline() == "linked\n"
            master.hang_up()
            assert rank.wait(30) == EXIT_MASTER_GONE


class BrokenChannel:
    """A channel whose stream fails with what nobody foresaw."""

    def stream_stream(self, _path):
        def connect(_requests):
            raise ZeroDivisionError("unforeseen")

        return connect

    def subscribe(self, tell, *, try_to_connect):
        tell(grpc.ChannelConnectivity.READY)

    def unsubscribe(self, tell):
        pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_whoever_waits_hears_of_the_end_even_when_the_reader_fails():
    with (
        MasterLink(
            BrokenChannel(), on_leave=print, on_file=print, on_image=print, on_lost=int
        ) as link,
        pytest.raises(MasterLost, match="the thread that reads the stream failed"),
    ):
        link.receive()


def test_last_words_are_heard_before_the_link_closes():
    with scripted_master() as master, open_channel(master.address) as channel:
        with MasterLink(
            channel, on_leave=print, on_file=print, on_image=print, on_lost=int
        ) as link:
            link.send(Fatal(message="last words"))
        assert master.hear() == Fatal(message="last words")
        assert master.hear() is None


def test_leave_is_told_at_once_and_takes_its_turn(linked):
    master, link = linked
    for message in (Shutdown(reason="first"), Leave(epoch=7)):
        master.say(message)
    while not link.told:
        time.sleep(0.01)
    assert link.told == [7]
    assert [link.receive(), link.receive()] == [Shutdown(reason="first"), Leave(epoch=7)]


def test_a_wait_that_has_a_bound_ends_without_a_message(linked):
    _, link = linked
    assert link.receive(timeout_s=0.01) is None


class NobodyReads(BrokenChannel):
    """A channel whose stream takes nothing until it is let go."""

    def __init__(self):
        self.go = threading.Event()

    def stream_stream(self, _path):
        def connect(requests):
            self.go.wait(10)
            self.heard = list(requests)
            return iter(())

        return connect


def test_a_beat_is_dropped_rather_than_queued_behind_what_waits():
    channel, beat = NobodyReads(), Heartbeat(step_id=1, num_stages=2)
    with MasterLink(channel, on_leave=print, on_file=print, on_image=print, on_lost=int) as link:
        for _ in range(1000):
            link.offer(beat)
        link.send(Ready(epoch=1))
        link.offer(beat)
        threading.Timer(0.1, channel.go.set).start()
    assert [decode_rank_message(one) for one in channel.heard] == [beat, Ready(epoch=1)]
